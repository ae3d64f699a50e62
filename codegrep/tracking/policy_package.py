"""A trained policy as a folder that can be loaded elsewhere: two LoRA adapters, what they sit on, a card. No MLflow.

GRPO's adapter is relative to the warm-started model, which is the base with the warm start's adapter merged into it.
The merged weights are as large as the base, so the warm start's adapter travels instead: base + warm_start, merged, +
adapter is the policy that was trained, bit for bit where the merge is made with the same library on the same kind of
machine. A package is read as data: JSON and safetensors, every file named in the manifest with its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from codegrep.errors import ModelError
from codegrep.tracking.parameters import masked

MANIFEST = "policy.json"
FORMAT = 1
WARM_START, ADAPTER = "warm_start", "adapter"
_WEIGHTS, _SETTINGS = "adapter_model.safetensors", "adapter_config.json"
_LARGEST = 64 << 30  # bytes of one file; a header that claims more is not read
_SAMPLE = 1 << 20


@dataclass(frozen=True)
class BaseReference:
    """The model below the adapters.

    Attributes:
        path: hub id, "provided:NAME", or a folder on the machine that trained.
        revision: hub revision, or None.
        dtype: of the frozen weights. context: tokens.
        checksum: `model_checksum` of its folder.
        name: hub id or plain name, for readers elsewhere; PEFT's settings hold it.
    """

    path: str
    revision: str | None
    dtype: str
    context: int
    checksum: str
    name: str = ""


@dataclass(frozen=True)
class PolicyPackage:
    """A folder that has been checked.

    Attributes:
        base: see BaseReference.
        warm_start, adapter: folders inside, None where there is none.
        config: the configuration of the run that trained it, secrets masked.
        digest: SHA-256 over everything that decides the policy.
    """

    folder: Path
    base: BaseReference
    warm_start: Path | None
    adapter: Path | None
    config: Mapping[str, Any]
    digest: str


def write_package(
    folder: Path,
    base: BaseReference,
    *,
    warm_start: Path | None,
    adapter: Path | None,
    config: Mapping[str, Any],
    card: str,
) -> PolicyPackage:
    """Fill a new folder; what was there is replaced.

    Args:
        warm_start, adapter: folders with an adapter as PEFT saves it.
        config: nested settings.
        card: Markdown for README.md.

    Raises:
        ModelError: neither adapter is given, or one is not whole.
    """
    if warm_start is None and adapter is None:
        raise ModelError("there is no adapter to pack")
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name, source in ((WARM_START, warm_start), (ADAPTER, adapter)):
        if source is not None:
            _copy_adapter(source, partial / name, base.name or base.path)
    (partial / "README.md").write_text(card, encoding="utf-8")
    files = {
        str(PurePosixPath(path.relative_to(partial))): file_sha256(path)
        for path in sorted(partial.rglob("*"))
        if path.is_file() and path.parent != partial
    }
    manifest = {"format": FORMAT, "base": asdict(base), "files": files, "config": masked(config)}
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=1, default=str) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return read_package(folder)


def read_package(folder: Path) -> PolicyPackage:
    """Check a folder that may come from anywhere.

    Raises:
        ModelError: it is no package, of another format, or a file is missing, changed or outside the folder.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise ModelError(f"the policy package has format {manifest['format']!r}, this version reads {FORMAT}")
        base = BaseReference(**manifest["base"])
        files, config = dict(manifest["files"]), dict(manifest["config"])
    except OSError:
        raise ModelError(f"{folder.name} is no policy of this project: it has no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{MANIFEST} of the policy package cannot be read", "Log the model again") from None
    if not isinstance(base.path, str) or base.dtype not in ("bfloat16", "float32") or not isinstance(base.context, int):
        raise ModelError(f"the base in {MANIFEST} is not described as it should be", "Log the model again")
    known = {f"{part}/{name}" for part in (WARM_START, ADAPTER) for name in (_WEIGHTS, _SETTINGS)}
    for name, digest in files.items():
        path = folder / name
        if name not in known or path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
            raise ModelError(f"{name} of the policy package is missing or does not belong there", "Log the model again")
        if file_sha256(path) != digest:
            raise ModelError(f"{name} of the policy package is not what was logged (SHA-256 differs)", "Fetch it again")
    parts = {part: folder / part if f"{part}/{_WEIGHTS}" in files else None for part in (WARM_START, ADAPTER)}
    if not any(parts.values()) or any(f"{part}/{_SETTINGS}" not in files for part, found in parts.items() if found):
        raise ModelError("the policy package holds no whole adapter", "Log the model again")
    identity = json.dumps([FORMAT, asdict(base) | {"path": "", "name": ""}, files], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return PolicyPackage(folder, base, parts[WARM_START], parts[ADAPTER], config, digest)


def model_checksum(folder: Path) -> str:
    """Return a digest that tells one model from another without reading all of it.

    It covers config.json, and of every safetensors file its size and its first and last MiB: the header, which names
    every tensor, is at the front.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE))
            file.seek(max(0, size - _SAMPLE))
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy_adapter(source: Path, target: Path, base: str) -> None:
    """Weights and settings; the settings name the base in place of a path of the training machine."""
    target.mkdir()
    try:
        shutil.copyfile(source / _WEIGHTS, target / _WEIGHTS)
        settings = json.loads((source / _SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{source.name} holds no whole adapter ({type(error).__name__})", "Train it again") from None
    settings["base_model_name_or_path"] = base
    (target / _SETTINGS).write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n", encoding="utf-8")
