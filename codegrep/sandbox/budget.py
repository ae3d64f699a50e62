"""How much a root of worktrees may take, and which trees go when it is too much."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from codegrep.errors import DiskError
from codegrep.sandbox.checkout import disk_bytes
from codegrep.sandbox.lease_registry import Ledger
from codegrep.sandbox.locks import FileLock

_GIB = 2**30


@dataclass(frozen=True)
class Budget:
    """Limits of one root. Beyond any of them the least recently used trees without a lease go, and never a leased one.

    Soft limits: adds that run at the same time do not count each other.

    Attributes:
        min_free_gib: disk that stays free; when removing trees does not get there, DiskError instead of an add.
        max_worktrees: trees kept; 0 means no limit.
        max_disk_gib: disk that the trees take, as measured when each was made (files that trees share count in parts);
            0 means no limit.
    """

    ledger: Ledger
    min_free_gib: float
    max_worktrees: int
    max_disk_gib: float

    def make_room(self, keep: str, remove: Callable[[str], bool]) -> None:
        """Remove trees until one more fits.

        Args:
            keep: the entry that is about to be made.
            remove: takes an entry down unless it is leased; True when it did.
        """
        if not self._is_short(keep):
            return
        with FileLock(self.ledger.root / ".locks" / "@eviction.lock"):
            for name in sorted(self._others(keep), key=self.ledger.last_use):
                if not self._is_short(keep):
                    return
                remove(name)

    def note(self, name: str) -> None:
        """Measures a tree that was made."""
        if self.max_disk_gib > 0:
            self.ledger.note_bytes(name, disk_bytes(self.ledger.tree(name)))

    def require_disk(self, repo: str, commit: str) -> None:
        """Raise DiskError when too little disk is free for another tree."""
        free = self._free_gib()
        if free < self.min_free_gib:
            raise DiskError(
                f"{free:.1f} GiB are free at {self.ledger.root}, less than sandbox.min_free_gib={self.min_free_gib:g}; "
                f"the tree of {repo} at {commit[:12]} was not written",
                "Free some disk, or lower sandbox.max_worktrees.",
            )

    def _is_short(self, keep: str) -> bool:
        if self.min_free_gib > 0 and self._free_gib() < self.min_free_gib:
            return True
        if self.max_worktrees <= 0 and self.max_disk_gib <= 0:
            return False
        others = self._others(keep)
        if 0 < self.max_worktrees < len(others) + 1:
            return True
        return self.max_disk_gib > 0 and self._bytes(others) > self.max_disk_gib * _GIB

    def _bytes(self, names: list[str]) -> int:
        """Of these trees; one that was made without a budget is measured now."""
        total = 0
        for name in names:
            size = self.ledger.bytes(name)
            if size is None and self.ledger.is_complete(name):
                self.note(name)
                size = self.ledger.bytes(name)
            total += size or 0
        return total

    def _others(self, keep: str) -> list[str]:
        return [name for name in self.ledger.names() if name != keep]

    def _free_gib(self) -> float:
        return shutil.disk_usage(self.ledger.root).free / _GIB
