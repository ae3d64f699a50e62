"""LoRA over all linear projections: attach, load, checksum, merge into the base.

The base is frozen and may be bfloat16; the LoRA matrices are float32 (steps of 1e-6 are lost in bfloat16's 8 bits).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import PreTrainedModel, set_seed

from codegrep.config import LoraSettings
from codegrep.engines.adapter import ADAPTER_FILE, AdapterPackage, tensors_sha256
from codegrep.engines.cpu.lora_linear import use_fused_lora
from codegrep.engines.models import load_model, load_tokenizer, provide
from codegrep.errors import ModelError

# What is trained: an adapter on a frozen base, or all weights.
PolicyModel = PeftModel | PreTrainedModel


def lora_config(settings: LoraSettings) -> LoraConfig:
    """Return PEFT's configuration: every linear layer but the output head, as CodeGrep (r=32, alpha=64)."""
    return LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="all-linear",
        bias="none",
        task_type="CAUSAL_LM",
    )


def attach_lora(model: PreTrainedModel, settings: LoraSettings, seed: int) -> PeftModel:
    """Attach a new trainable adapter, which leaves the model's outputs as they are (B is zero)."""
    set_seed(seed)  # A is drawn at random
    peft_model = get_peft_model(model, lora_config(settings))
    assert isinstance(peft_model, PeftModel)
    use_fused_lora(peft_model)
    return peft_model


def load_adapter(model: PreTrainedModel, folder: Path, trainable: bool = False) -> PeftModel:
    """Return `model` with the adapter saved in `folder`.

    Raises:
        ModelError: the folder holds no adapter, or one of another architecture.
    """
    if not (folder / ADAPTER_FILE).is_file():
        raise ModelError(f"{folder} holds no adapter ({ADAPTER_FILE} is missing)")
    try:
        loaded = PeftModel.from_pretrained(model, str(folder), is_trainable=trainable)
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            f"the adapter in {folder} does not fit the model ({str(error).splitlines()[0][:200]})"
        ) from error
    use_fused_lora(loaded)
    return loaded


def adapter_sha256(source: PeftModel | Path) -> str:
    """Return the checksum of an adapter's tensors (names, dtypes, shapes, bytes), of a model or a saved folder."""
    return tensors_sha256(
        get_peft_model_state_dict(source) if isinstance(source, PeftModel) else load_file(source / ADAPTER_FILE)
    )


def package_adapter(model: PeftModel, version: int) -> AdapterPackage:
    """Return the current adapter, to be sent to an engine. version: optimiser steps done."""
    config = model.peft_config[model.active_adapter].to_dict()
    return AdapterPackage.of(get_peft_model_state_dict(model), config, version)


@dataclass(frozen=True)
class Merge:
    """What merging changed.

    Attributes:
        max_logit_gap: largest |logit difference| of a probe text before and after, in float32.
        rounding_gap: the same against the merged weights rounded to the target dtype.
    """

    max_logit_gap: float
    rounding_gap: float


def merge_adapter(base: str, adapter: Path, out: Path, dtype: str) -> Merge:
    """Merge a warm-start adapter into its base, so that GRPO starts with a new adapter.

    GRPO's KL reference is the model with the adapter off. With the warm-start adapter itself in training, that would be
    the untrained base, and KL would undo the warm start. Weights are added in float32 and rounded once.

    Args:
        base: folder or hub id of the base.
        adapter: folder of the adapter.
        out: folder for the merged model and the tokenizer.
        dtype: of the merged weights.

    Raises:
        ModelError: the adapter does not fit, or the merged model computes something else.
    """
    folder = provide(base)
    tokenizer = load_tokenizer(folder)
    tuned = load_adapter(load_model(folder, "float32"), adapter).eval()
    probe = torch.arange(64)[None] % tuned.config.get_text_config().vocab_size
    with torch.no_grad():
        before = tuned(input_ids=probe).logits
        merged = tuned.merge_and_unload()
        gap = (merged(input_ids=probe).logits - before).abs().max().item()
        if not gap <= 1e-3 * max(1.0, before.abs().max().item()):
            raise ModelError(f"merging the adapter in {adapter} changed the logits by {gap:.3g}", "Train it again")
        merged.to(getattr(torch, dtype))
        out.mkdir(parents=True, exist_ok=True)
        merged.save_pretrained(str(out))
        tokenizer.save_pretrained(str(out))
        rounding = (merged.float()(input_ids=probe).logits - before).abs().max().item()
    return Merge(gap, rounding)
