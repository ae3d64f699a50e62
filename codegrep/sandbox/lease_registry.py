"""The registry of a worktree root: which trees were made, whether they are whole, and who leases them.

All of it lies outside the trees.

    <root>/.ledger/<name>/entry.json     repository, commit, bare clone; written before anything of the tree exists
    <root>/.ledger/<name>/complete       the checkout ended; holds the tree's digest
    <root>/.ledger/<name>/used           its modification time is the last use
    <root>/.ledger/<name>/bytes          disk that the tree takes, where a budget is kept
    <root>/.ledger/<name>/leases/        one file a lease: <owner>@<number>
    <root>/.owners/<owner>               a process that may hold leases; it keeps a flock on this file while it lives
    <root>/.locks/<name>.lock            held while an entry is changed

A lease counts while its owner's flock is held: the kernel drops the flock at the moment of death, so a reused process
id or another process-id namespace (containers on one disk) can neither keep a dead lease alive nor end a live one. An
owner's name begins with its process id, for people who look into the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from codegrep.sandbox.locks import FileLock


@dataclass(frozen=True)
class Entry:
    """What was asked for under a name. bare: real path of the bare clone. committed: seconds since the epoch."""

    name: str
    repo: str
    commit: str
    bare: str
    committed: int = 0


class Owner:
    """This process as a holder of leases. One per Worktrees object; `close` ends all of its leases."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._path = folder / self.name
        # Made under a hidden name and locked before it appears, so that nobody can take it for a dead owner's.
        fresh = folder / f".{self.name}"
        self._descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        fresh.rename(self._path)
        self._numbers = iter(range(1, 1 << 62))
        self._guard = threading.Lock()

    def next_lease(self) -> str:
        """Return a lease file's name, unique in this root."""
        with self._guard:
            return f"{self.name}@{next(self._numbers)}"

    def close(self) -> None:
        """End the ownership; leases that are still there become a dead owner's."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


class Ledger:
    """The files of the ledger.

    Except for `add_lease`, `end_lease` and `touch` an entry is changed under its lock only.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._entries = root / ".ledger"
        self._owners = root / ".owners"
        for folder in (self._entries, self._owners, root / ".locks", root / ".trash"):
            folder.mkdir(parents=True, exist_ok=True)
        self._owner: Owner | None = None
        self._guard = threading.Lock()

    def tree(self, name: str) -> Path:
        """Where the tree of an entry is."""
        return self.root / name

    def lock(self, name: str, timeout: float = 1800.0) -> FileLock:
        """Return the lock of an entry."""
        return FileLock(self.root / ".locks" / f"{name}.lock", timeout)

    def names(self) -> list[str]:
        """All entries, whole or not."""
        return sorted(p.name for p in self._entries.iterdir())

    def entry(self, name: str) -> Entry | None:
        """Return the entry of that name, or None."""
        try:
            loaded = json.loads((self._entries / name / "entry.json").read_text("utf-8"))
            return Entry(**loaded)
        except (OSError, ValueError, TypeError):
            return None

    def is_complete(self, name: str) -> bool:
        """Return whether the checkout of this entry ended."""
        return (self._entries / name / "complete").exists()

    def digest(self, name: str) -> str:
        """Return the digest of the tree when it was completed, "" where there is none."""
        try:
            return (self._entries / name / "complete").read_text("utf-8")
        except OSError:
            return ""

    def begin(self, entry: Entry) -> None:
        """Write an entry down before its tree is touched."""
        folder = self._entries / entry.name
        (folder / "leases").mkdir(parents=True, exist_ok=True)
        (folder / "complete").unlink(missing_ok=True)
        fresh = folder / "entry.json.new"
        fresh.write_text(json.dumps(asdict(entry)), "utf-8")
        fresh.replace(folder / "entry.json")
        self.touch(entry.name)

    def complete(self, name: str, digest: str) -> None:
        """Says that the tree is whole, and how it is."""
        fresh = self._entries / name / "complete.new"
        fresh.write_text(digest, "utf-8")
        fresh.replace(self._entries / name / "complete")

    def incomplete(self, name: str) -> None:
        """Says that the tree is not whole any more, before it is taken down."""
        (self._entries / name / "complete").unlink(missing_ok=True)

    def forget(self, name: str) -> None:
        """Remove an entry."""
        shutil.rmtree(self._entries / name, ignore_errors=True)

    def touch(self, name: str) -> None:
        """Mark an entry as used now."""
        used = self._entries / name / "used"
        used.touch()

    def last_use(self, name: str) -> float:
        """Seconds since the epoch of the last use, 0 where unknown."""
        try:
            return (self._entries / name / "used").stat().st_mtime
        except OSError:
            return 0.0

    def note_bytes(self, name: str, size: int) -> None:
        """Write down how much disk a tree takes."""
        (self._entries / name / "bytes").write_text(str(size), "utf-8")

    def bytes(self, name: str) -> int | None:
        """Return what was written down, or None."""
        try:
            return int((self._entries / name / "bytes").read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def add_lease(self, name: str) -> Path:
        """Write a lease of this process down. FileNotFoundError when the entry was removed meanwhile."""
        with self._guard:
            if self._owner is None:
                self._owner = Owner(self._owners)
            owner = self._owner
        path = self._entries / name / "leases" / owner.next_lease()
        path.touch()
        return path

    def leases(self, name: str) -> int:
        """Return number of leases whose owner lives; the others are removed on the way."""
        alive = 0
        folder = self._entries / name / "leases"
        for path in folder.iterdir() if folder.is_dir() else ():
            if self._lives(path.name.partition("@")[0]):
                alive += 1
            else:
                path.unlink(missing_ok=True)
        return alive

    def bury_owners(self) -> None:
        """Remove the files of owners that have died."""
        for path in self._owners.iterdir():
            if not path.name.startswith("."):
                self._lives(path.name, bury=True)

    def trash(self, path: Path) -> Path:
        """Return a new name under which a tree waits for its deletion, on the same disk."""
        return self.root / ".trash" / f"{path.name}@{uuid.uuid4().hex[:8]}"

    def close(self) -> None:
        """End this process's leases."""
        with self._guard:
            if self._owner is not None:
                self._owner.close()
            self._owner = None

    def _lives(self, owner: str, bury: bool = False) -> bool:
        if self._owner is not None and owner == self._owner.name:
            return True
        path = self._owners / owner
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            if bury:
                path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
