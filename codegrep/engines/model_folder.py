"""Model folders: what must be in one, and how one is made atomically."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

from codegrep.errors import ModelError

MARKER = "provided.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_LFS_POINTER = b"version https://git-lfs"


def check_folder(folder: Path, *, chat: bool = True) -> None:
    """Check that a folder holds a complete model: configuration, safetensors weights, tokenizer, chat template.

    Only headers are read.

    Args:
        folder: of the model.
        chat: False for a model that embeds texts, which has no chat template.

    Raises:
        ModelError: what is missing or broken, one line.
    """
    if not folder.is_dir():
        raise ModelError(f"model folder {folder} is not a folder", "Give the folder that holds config.json")
    if not (folder / "config.json").is_file():
        if (folder / "adapter_config.json").is_file():
            raise ModelError(
                f"model folder {folder} holds a LoRA adapter, not a model", "Merge it into its base model first"
            )
        raise ModelError(f"model folder {folder} has no config.json", "Give the folder that save_pretrained wrote")
    config = _json(folder / "config.json")
    if "model_type" not in config:
        raise ModelError(f"config.json of model folder {folder} has no model_type", "Fetch or save the model again")
    _check_weights(folder)
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelError(f"model folder {folder} has no tokenizer", "Save it there with tokenizer.save_pretrained")
    if chat and not _has_chat_template(folder):
        raise ModelError(
            f"the tokenizer of model folder {folder} has no chat template",
            "Use an instruct model, or put its template into chat_template.jinja",
        )


def make_once(folder: Path, name: str, make: Callable[[Path, Path], dict[str, str]], *, chat: bool = True) -> Path:
    """Make the model `name` inside `folder` once, and return its folder.

    The model is made in a temporary folder and renamed when complete. A complete folder that a person put there is used
    as it is.

    Args:
        folder: folder of the models.
        name: name of the model's folder.
        make: fills an empty folder (first argument); the second is `folder`. Returns its origin.
        chat: see `check_folder`.

    Raises:
        ModelError: a person's folder is incomplete, or what `make` raises.
    """
    from filelock import FileLock

    target = folder / name
    if _is_whole(target, chat):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"the folder of the models {folder} cannot be created: {error.strerror}",
            "Set CODEGREP_MODELS to another one",
        ) from error
    with FileLock(folder / f".{name}.lock"):
        if _is_whole(target, chat):  # another process made it while this one waited
            return target
        for remains in folder.glob(f".{name}.*.part"):
            shutil.rmtree(remains, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=folder))
        try:
            with without_bars():
                origin = make(part, folder)
            check_folder(part, chat=chat)
            (part / MARKER).write_text(json.dumps({"name": name, **origin}, indent=2) + "\n", encoding="utf-8")
            _open_to_readers(part)
            if target.exists():  # made here once, broken since
                shutil.rmtree(target)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return target


@contextmanager
def without_bars() -> Iterator[None]:
    """Within, hide transformers' progress bars unless standard error is a terminal."""
    from tqdm import tqdm
    from transformers.utils import logging

    hide = logging.is_progress_bar_enabled() and not sys.stderr.isatty()
    shown: Any = tqdm.__init__
    if hide:
        logging.disable_progress_bar()
        tqdm.__init__ = partialmethod(shown, disable=True)  # reading GGUF files asks tqdm itself
    try:
        yield
    finally:
        if hide:
            logging.enable_progress_bar()
            tqdm.__init__ = shown


def _is_whole(target: Path, chat: bool) -> bool:
    if not target.exists():
        return False
    try:
        check_folder(target, chat=chat)
    except ModelError:
        if (target / MARKER).is_file():
            return False  # made here: made again
        raise  # a person's: never changed
    return True


def _open_to_readers(folder: Path) -> None:
    folder.chmod(0o755)  # mkdtemp and safetensors write for the owner only
    for file in folder.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


def _check_weights(folder: Path) -> None:
    shards = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        listed = set(_json(index).get("weight_map", {}).values())
        missing = sorted(listed - {shard.name for shard in shards})
        if missing:
            raise ModelError(
                f"model folder {folder} lacks {len(missing)} of {len(listed)} weight files, {missing[0]} among them",
                "Fetch the model again",
            )
        shards = [shard for shard in shards if shard.name in listed]
    else:
        shards = [shard for shard in shards if shard.name == "model.safetensors"]
    if not shards:
        if any(next(folder.glob(pattern), None) for pattern in _PICKLED):
            raise ModelError(
                f"model folder {folder} holds pickled weights only, which can run code when they are loaded",
                "Convert them to safetensors: save_pretrained of a current transformers does it",
            )
        if next(folder.glob("*.gguf"), None):
            raise ModelError(
                f"model folder {folder} holds a GGUF file only", "Convert it to safetensors with transformers"
            )
        raise ModelError(f"model folder {folder} has no weights (model.safetensors)", "Fetch or save the model again")
    for shard in shards:
        _check_safetensors(shard)


def _check_safetensors(file: Path) -> None:
    """Check the size of a safetensors file: header length (8 bytes, little endian), JSON header, tensors."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        if start + stream.read(len(_LFS_POINTER) - 8) == _LFS_POINTER:
            raise ModelError(f"{file} is a git-lfs pointer, not the weights", "Run git lfs pull in that folder")
        stream.seek(8)
        length = int.from_bytes(start, "little")
        try:
            if length > size - 8:
                raise ValueError
            header = json.loads(stream.read(length))
            ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
            expected = 8 + length + max(ends, default=0)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            raise ModelError(f"{file} is not a safetensors file, or is cut short", "Fetch the model again") from None
    if size != expected:
        raise ModelError(f"{file} has {size} bytes instead of {expected}", "Fetch the model again")


def _has_chat_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    settings = folder / "tokenizer_config.json"
    return settings.is_file() and bool(_json(settings).get("chat_template"))


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as JSON", "Fetch or save the model again") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} does not hold a JSON object", "Fetch or save the model again")
    return content
