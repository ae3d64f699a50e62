"""What could not be sent to MLflow, kept in a local file until it can be. Pure."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One thing to send. `kind` is metrics, params, tags, artifact, policy or status; `body` is its JSON content."""

    kind: str
    body: Mapping[str, Any]


class Spool:
    """The unsent entries of one run in one folder: a JSONL file for every process that had something to keep.

    Processes do not share a file to write to. Whoever sends takes every file that is there, by renaming it first, so
    that two senders do not take the same one. A lock on the file makes it wait for a line that is being written.

    Args:
        folder: where the files go; made when the first entry is kept.
        run_id: of the run.
    """

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self._run_id = run_id
        self.unreadable = 0

    @property
    def path(self) -> Path:
        """File of this process."""
        return self.folder / f"unsent-{self._run_id}-{os.getpid()}.jsonl"

    def keep(self, entry: Entry) -> None:
        """Append one entry. A temporary file is adopted first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"kind": entry.kind, **entry.body}, default=str) + "\n"
        while True:
            with self.path.open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_at(self.path, file.fileno()):  # else a sender has taken it since it was opened
                    file.write(line)
                    return

    def adopt(self, path: Path) -> Path:
        """Move a temporary file to a place where it stays until it has been sent; its name is kept."""
        target = self.folder / f"unsent-{self._run_id}-files" / uuid.uuid4().hex / path.name
        target.parent.mkdir(parents=True)
        shutil.move(path, target)
        return target

    def waiting(self) -> bool:
        """Whether any process left something."""
        return bool(self._files())

    def take(self) -> Iterator[tuple[Path, list[Entry]]]:
        """Every file of every process with its entries, oldest first, claimed for the caller.

        Delete a file when its entries have been sent or kept again: killed before that, they are sent twice, not lost.
        A line that cannot be read (its process was killed while writing) is counted in `unreadable` and left out.
        """
        for path in sorted(self._files(), key=_age):
            claimed = path.with_name(f"{path.name.partition('.jsonl')[0]}.jsonl.{uuid.uuid4().hex[:12]}")
            try:
                path.rename(claimed)
                with claimed.open(encoding="utf-8", errors="replace") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
                    lines = file.read().splitlines()
            except OSError:  # another sender was faster
                continue
            read = [_read(line) for line in lines]
            self.unreadable += read.count(None)
            yield claimed, [entry for entry in read if entry is not None]

    def _files(self) -> list[Path]:
        return list(self.folder.glob(f"unsent-{glob.escape(self._run_id)}-*.jsonl*"))

    def discard(self, path: Path) -> None:
        """Delete an adopted file that has been sent, and the folders that are empty then."""
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()
            path.parent.parent.rmdir()


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(line: str) -> Entry | None:
    try:
        body = json.loads(line)
        return Entry(body.pop("kind"), body)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
