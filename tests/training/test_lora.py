from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel

from codegrep.engines.models import load_model
from codegrep.errors import ModelError
from codegrep.training.lora import adapter_sha256, attach_lora, load_adapter, merge_adapter
from tests.training.made_rollouts import LORA

IDS = torch.arange(24).view(2, 12)


def _tuned(folder: Path, dtype: str = "float32") -> PeftModel:
    model = load_model(folder, dtype)
    model.requires_grad_(False)
    tuned = attach_lora(model, LORA, seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.05 * torch.randn(parameter.shape, generator=generator)
    return tuned


def _without_fusion(model: PeftModel) -> PeftModel:
    for module in model.modules():
        vars(module).pop("forward", None)
    return model


def test_only_float32_lora_matrices_of_all_linear_layers_are_trained(nano: Path) -> None:
    tuned = _tuned(nano, "bfloat16")
    trained = {name: p for name, p in tuned.named_parameters() if p.requires_grad}
    layers = tuned.config.num_hidden_layers
    assert len(trained) == 2 * 7 * layers  # A and B of q, k, v, o, gate, up, down
    assert all(p.dtype == torch.float32 for p in trained.values())
    assert not any("lm_head" in name for name in trained)


def test_a_new_adapter_changes_nothing(nano: Path) -> None:
    model = load_model(nano, "float32")
    before = model(input_ids=IDS).logits
    assert torch.equal(attach_lora(model, LORA, 0)(input_ids=IDS).logits, before)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 5e-2)])
def test_fused_product_equals_peft(nano: Path, dtype: str, tolerance: float) -> None:
    results = []
    for model in (_tuned(nano, dtype), _without_fusion(_tuned(nano, dtype))):
        logits = model(input_ids=IDS).logits.float()
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()).backward()
        grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        results.append((logits, grads))
    (fused, fused_grads), (plain, plain_grads) = results
    assert torch.allclose(fused, plain, atol=tolerance, rtol=tolerance)
    assert fused_grads.keys() == plain_grads.keys() and fused_grads
    for name, grad in plain_grads.items():
        gap = (fused_grads[name] - grad).norm() / grad.norm().clamp(min=1e-12)
        assert gap < tolerance, name


def test_fused_product_steps_aside_when_the_adapter_is_off(nano: Path) -> None:
    tuned = _tuned(nano)
    base = load_model(nano, "float32")(input_ids=IDS).logits
    with tuned.disable_adapter():
        assert torch.equal(tuned(input_ids=IDS).logits, base)
    assert not torch.allclose(tuned(input_ids=IDS).logits, base)


def test_saved_adapter_is_the_one_that_is_loaded(nano: Path, tmp_path: Path) -> None:
    tuned = _tuned(nano)
    tuned.save_pretrained(str(tmp_path / "adapter"))
    digest = adapter_sha256(tmp_path / "adapter")
    assert digest == adapter_sha256(tuned)
    again = load_adapter(load_model(nano, "float32"), tmp_path / "adapter")
    assert adapter_sha256(again) == digest
    assert torch.equal(again.eval()(input_ids=IDS).logits, tuned.eval()(input_ids=IDS).logits)
    next(p for n, p in tuned.named_parameters() if "lora_A" in n).data[0, 0] += 1e-3
    assert adapter_sha256(tuned) != digest


def test_loading_from_an_empty_folder_is_one_clear_error(nano: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no adapter"):
        load_adapter(load_model(nano, "float32"), tmp_path)


def test_merged_model_computes_what_the_adapter_did(nano: Path, tmp_path: Path) -> None:
    tuned = _tuned(nano)
    tuned.save_pretrained(str(tmp_path / "adapter"))
    merge = merge_adapter(str(nano), tmp_path / "adapter", tmp_path / "merged", "float32")
    assert merge.max_logit_gap < 1e-4 and merge.rounding_gap < 1e-4
    merged = load_model(tmp_path / "merged", "float32")
    assert torch.allclose(merged(input_ids=IDS).logits, tuned.eval()(input_ids=IDS).logits, atol=1e-4)
    # A new adapter on it starts at the warm-started policy, and so does its adapter-off reference.
    fresh = attach_lora(merged, LORA, 0).eval()
    with fresh.disable_adapter():
        assert torch.allclose(fresh(input_ids=IDS).logits, tuned(input_ids=IDS).logits, atol=1e-4)
