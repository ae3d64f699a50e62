"""A judge's answers on disk by content hash, so that a restarted run pays for nothing twice.

One append-only file a process, so that many workers can share a folder without a lock. An unfinished line of a
killed process is skipped.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any


class AnswerCache:
    """Answers in a folder. Failures are not stored."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._out: IO[str] | None = None
        self._bytes_read: dict[Path, int] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes have added since."""
        own = Path(self._out.name) if self._out is not None else None
        for path in sorted(self._folder.glob("*.jsonl")):
            if path != own:
                self._read_new_lines(path)

    def _read_new_lines(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._bytes_read.get(path, 0))
            added = file.read()
        complete = added.rfind(b"\n") + 1  # the last line may be half written
        self._bytes_read[path] = self._bytes_read.get(path, 0) + complete
        for line in added[:complete].decode("utf-8", "replace").split("\n"):
            try:
                row = json.loads(line)
                key, answer = row["key"], row["answer"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if isinstance(key, str) and isinstance(answer, dict):
                self._answers[key] = answer

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the answer stored under a key, or None."""
        return self._answers.get(key)

    def put(self, key: str, answer: Mapping[str, Any]) -> None:
        """Store an answer; it is in the file when this returns."""
        self._answers[key] = answer
        if self._out is None:
            name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
            self._out = (self._folder / name).open("a", encoding="utf-8")
        self._out.write(json.dumps({"key": key, "answer": dict(answer)}) + "\n")
        self._out.flush()
