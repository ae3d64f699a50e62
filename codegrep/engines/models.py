"""Models made on this machine, in a local folder or on a hub, as a checked local folder.

Importing this module imports neither torch nor transformers.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.conf_folder import cache_folder, checkout
from codegrep.engines import minilm, nano, smollm2
from codegrep.engines.model_folder import check_folder, make_once, without_bars
from codegrep.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROVIDED_PREFIX = "provided:"
PROVIDED = {smollm2.NAME: smollm2.make, nano.NAME: nano.make, minilm.NAME: minilm.make}
"""Models that are made on this machine: name -> function (empty folder to fill, folder of the models)."""

_ON_HUB = {smollm2.NAME: smollm2.HUB_ID}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt"]


@dataclass(frozen=True)
class PolicyFiles:
    """A model to run. adapter: folder of a LoRA adapter on top of `model`, or None."""

    model: Path
    adapter: Path | None = None


def models_folder() -> Path:
    """Return the folder of provided models: $CODEGREP_MODELS, or models/ of the checkout or of the user's cache."""
    chosen = os.environ.get("CODEGREP_MODELS") or (checkout() or cache_folder()) / "models"
    return Path(chosen).expanduser().absolute()


def public_name(path: str) -> str:
    """Return how others call a model: its hub id where it has one, else the last part of its path or name."""
    if path.startswith(PROVIDED_PREFIX):
        name = path.removeprefix(PROVIDED_PREFIX)
        return _ON_HUB.get(name, name)
    return Path(path).expanduser().absolute().name if Path(path).expanduser().exists() else path


def provide(path: str, folder: Path | None = None, *, revision: str | None = None, chat: bool = True) -> Path:
    """Bring a model onto this machine and check it. May be called twice and from several processes.

    Args:
        path: "provided:NAME", a local folder, or a hub id ("owner/name").
        folder: of provided models; default `models_folder()`.
        revision: hub revision (branch, tag or commit); for a hub id only.
        chat: False for a model that embeds texts, which has no chat template.

    Returns:
        Absolute folder with config, safetensors weights and a tokenizer with a chat template.

    Raises:
        ModelError: no such model, an incomplete folder, or an index or hub that cannot be reached.
        DiskError: too little space to make a provided model.
    """
    if path.startswith(PROVIDED_PREFIX):
        return _make(path.removeprefix(PROVIDED_PREFIX), (folder or models_folder()).expanduser().absolute())
    local = Path(path).expanduser().absolute()
    if local.exists():
        check_folder(local, chat=chat)
        return local
    if _HUB_ID.fullmatch(path):
        return _from_hub(path, revision, chat)
    raise ModelError(
        f"model folder {path} does not exist",
        f"Give a local folder, a hub id (owner/name), or one of {', '.join(PROVIDED_PREFIX + n for n in PROVIDED)}",
    )


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a folder that `provide` returned.

    Raises:
        ModelError: it does not load, or has no end-of-turn token.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:  # the library raises a dozen types for one broken file
        raise ModelError(f"the tokenizer of model folder {folder} does not load: {_first_line(error)}") from error
    if tokenizer.eos_token_id is None:
        raise ModelError(f"the tokenizer of model folder {folder} has no end-of-turn token", "Set eos_token in it")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(folder: Path, dtype: str) -> PreTrainedModel:
    """Load the weights of a folder that `provide` returned, on the CPU, in evaluation mode.

    Args:
        folder: the model's.
        dtype: "bfloat16" or "float32".

    Raises:
        ModelError: the weights do not load or are incomplete, or the model needs code of its own.
    """
    import torch
    from transformers import AutoModelForCausalLM

    types = {"bfloat16": torch.bfloat16, "float32": torch.float32}
    if dtype not in types:
        raise ModelError(f"model.dtype is '{dtype}'", "Use bfloat16 or float32")
    try:
        with without_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=types[dtype],
                trust_remote_code=False,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
    except Exception as error:  # likewise
        fix = ""
        if "trust_remote_code" in str(error):
            fix = "The model needs code of its own, which is never run: choose a model that transformers has built in"
        raise ModelError(f"model folder {folder} does not load: {_first_line(error)}", fix) from error
    model: PreTrainedModel = loaded[0]
    report: dict[str, Any] = loaded[1]
    if report["missing_keys"]:  # transformers fills them with random numbers
        missing = sorted(report["missing_keys"])
        raise ModelError(
            f"the weights of model folder {folder} lack {len(missing)} tensors, {missing[0]} among them",
            "Fetch or save the model again",
        )
    model.eval()
    return model


def _make(name: str, folder: Path) -> Path:
    if name not in PROVIDED:
        raise ModelError(
            f"there is no provided model '{name}'", f"Known: {', '.join(PROVIDED_PREFIX + n for n in PROVIDED)}"
        )
    return make_once(folder, name, PROVIDED[name], chat=name != minilm.NAME)


def _from_hub(hub_id: str, revision: str | None, chat: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    by_hand = "Set model.path to a local folder, or use model=smollm2_135m, which needs a package index only"
    try:
        snapshot = snapshot_download(hub_id, revision=revision, allow_patterns=_HUB_FILES)
    except GatedRepoError as error:
        raise ModelError(
            f"model {hub_id} is gated on the hub", "Accept its terms there, log in with `hf auth login`, and run again"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(f"model {hub_id} has no revision '{revision}' on the hub", "Check model.revision") from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"there is no model folder {hub_id} here and no public model {hub_id} on the hub", "Check model.path"
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise ModelError(
            f"there is no model folder {hub_id} here, and the model hub cannot be reached for model {hub_id}", by_hand
        ) from error
    folder = Path(snapshot)
    check_folder(folder, chat=chat)
    return folder


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (text[:200] + "…") if len(text) > 200 else text or type(error).__name__
