"""Artifacts: a folder a stage leaves, named by the fingerprint of everything that decides its content."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from codegrep.runtime.remote_storage import Storage

# Raised when a stage's output changes its form or meaning, so that old artifacts are not taken for new ones.
FORMAT = 2


def fingerprint(inputs: Any) -> str:
    """Return the SHA-256 of canonical JSON, 64 hex digits. Dataclasses and paths are allowed anywhere in it."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be part of a fingerprint")


def from_outputs(value: Any, outputs: str) -> Any:
    """Name paths under the outputs folder from there: where outputs lie changes no result."""
    if isinstance(value, dict):
        return {key: from_outputs(inner, outputs) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [from_outputs(inner, outputs) for inner in value]
    inside = isinstance(value, str) and value.startswith(f"{outputs.rstrip('/')}/")
    return f"${{outputs}}/{value.removeprefix(outputs).lstrip('/')}" if inside else value


@dataclass(frozen=True)
class Places:
    """Folders under `outputs`."""

    outputs: Path

    @property
    def artifacts(self) -> Path:
        """Stage artifacts, shared by runs."""
        return self.outputs / "artifacts"

    @property
    def sandbox(self) -> Path:
        """Bare clones, worktrees and their ledger."""
        return self.outputs / "sandbox"

    @property
    def clones(self) -> Path:
        """Bare clones."""
        return self.sandbox / "bare"

    @property
    def index(self) -> Path:
        """What retrievers know of file contents, by blob."""
        return self.outputs / "index"

    @property
    def runs(self) -> Path:
        """One folder a run: its lock, its MLflow run id, its report."""
        return self.outputs / "runs"

    @property
    def sweeps(self) -> Path:
        """One folder a sweep or search: its record and the logs of its jobs."""
        return self.outputs / "sweeps"


@dataclass(frozen=True)
class Artifact:
    """One stage's output. It is complete once `artifact.json` is in its folder; that file is written last."""

    stage: str
    fingerprint: str
    folder: Path
    inputs: Mapping[str, Any]
    mirror: Storage | None = None

    @property
    def complete(self) -> bool:
        """The stage has finished, in this run or an earlier one."""
        return (self.folder / "artifact.json").is_file()

    @property
    def summary(self) -> dict[str, Any]:
        """What the stage said about itself when it finished."""
        loaded = json.loads((self.folder / "artifact.json").read_text(encoding="utf-8"))
        return dict(loaded["summary"])

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the artifact complete."""
        record = {
            "stage": self.stage,
            "fingerprint": self.fingerprint,
            "format": FORMAT,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "summary": dict(summary),
            "inputs": self.inputs,
        }
        write_json(self.folder / "artifact.json", record)
        if self.mirror is not None:
            self.mirror.push(self.folder)

    def write_json(self, name: str, value: Any) -> Path:
        """Write one JSON file into the folder."""
        return write_json(self.folder / name, value)

    def read_json(self, name: str) -> Any:
        """Read one JSON file of the folder."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> Path:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value, indent=1, sort_keys=True, default=_plain) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


class ArtifactStore:
    """Artifacts of all runs under one outputs folder; equal inputs share one artifact."""

    def __init__(self, root: Path, mirror: Storage | None = None) -> None:
        self.root = root
        self._mirror = mirror

    def open(self, stage: str, inputs: Mapping[str, Any]) -> Artifact:
        """Return the artifact for these inputs; its folder exists afterwards and may hold an interrupted attempt."""
        full = {"stage": stage, "format": FORMAT, "inputs": dict(inputs)}
        digest = fingerprint(full)
        folder = self.root / f"{stage}-{digest[:12]}"
        folder.mkdir(parents=True, exist_ok=True)
        artifact = Artifact(stage, digest, folder, json.loads(json.dumps(dict(inputs), default=_plain)), self._mirror)
        if self._mirror is not None and not artifact.complete:
            self._mirror.pull(folder)
        return artifact


def file_content(path: Path) -> str:
    """Return the SHA-256 of a file; read once a process while its size and time stay."""
    about = path.stat()
    return _content(str(path), about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=4096)
def _content(path: str, _size: int, _time: int) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while piece := stream.read(2**20):
            digest.update(piece)
    return digest.hexdigest()
