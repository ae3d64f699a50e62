"""Keep each lease of this process for a moment after its release.

So the turns of a rollout do not write one file again and again.

To other processes such a lease looks like any other one: a file of an owner that lives. It ends when its time has
passed, when this process's budget wants the tree, or with the process, however that ends.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from codegrep.sandbox.lease_registry import Entry, Ledger
from codegrep.sandbox.tree_state import TreeState, tree_state

# How often a tree that is lent all the time is marked as used, seconds.
_MARK = 1.0


@dataclass(eq=False)
class Held:
    """A lease file and how many leases stand on it.

    Attributes:
        state: the tree when the file was written.
        until: when it goes, once there are none.
        looked: all files were looked at since.
    """

    entry: Entry
    file: Path
    state: TreeState
    count: int
    marked: float
    until: float = 0.0
    looked: bool = False


class Lingering:
    """Safe to use from several threads. seconds: 0 gives every lease a file of its own and ends it at once."""

    def __init__(self, ledger: Ledger, seconds: float) -> None:
        self._ledger = ledger
        self._seconds = seconds
        self._held: dict[tuple[str, str], Held] = {}
        self._timer: threading.Timer | None = None
        self._guard = threading.Lock()

    def again(self, repo: str, commit: str) -> Held | None:
        """One more lease on a file that is there, or None."""
        if not self._seconds:
            return None
        now = time.monotonic()
        with self._guard:
            held = self._held.get((repo, commit))
            if held is None:
                return None
            if not os.path.lexists(self._ledger.tree(held.entry.name) / ".git"):
                self._let_go(held)  # a tree that was deleted by hand is made anew
                return None
            held.count += 1
            marked, held.marked = held.marked, now
            if now - marked < _MARK:
                held.marked = marked
                return held
        self._ledger.touch(held.entry.name)
        return held

    def begin(self, entry: Entry, state: TreeState) -> Held:
        """Return a new lease. The entry's lock is held."""
        held = Held(entry, self._ledger.add_lease(entry.name), state, 1, time.monotonic())
        self._ledger.touch(entry.name)
        if self._seconds:
            with self._guard:
                self._held.setdefault((entry.repo, entry.commit), held)
        return held

    def end(self, held: Held) -> None:
        """End one lease."""
        with self._guard:
            held.count -= 1
            if held.count:
                return
            if self._held.get(_key(held)) is not held:
                held.file.unlink(missing_ok=True)
                return
            held.until = time.monotonic() + self._seconds
            self._wake(self._seconds)

    def is_unchanged(self, held: Held) -> bool:
        """Whether the tree is as it was at the beginning: all of it the first time, names that came or went later on.

        Nobody gets a lease on a changed tree any more without a new look at it.
        """
        first, held.looked = not held.looked, True
        try:
            tree = self._ledger.tree(held.entry.name)
            same = held.state.same_names() and (not first or tree_state(tree).digest == held.state.digest)
        except OSError:
            same = False
        if not same:
            with self._guard:
                if self._held.get(_key(held)) is held:
                    self._let_go(held)
        return same

    def forget(self, name: str) -> None:
        """End what only lingers on an entry."""
        with self._guard:
            for held in [one for one in self._held.values() if one.entry.name == name]:
                self._let_go(held)

    def close(self) -> None:
        """End all that lingers; leases that were not released go on without a file to share."""
        with self._guard:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            for held in list(self._held.values()):
                self._let_go(held)

    def _let_go(self, held: Held) -> None:
        del self._held[_key(held)]
        if not held.count:
            held.file.unlink(missing_ok=True)

    def _wake(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = threading.Timer(seconds, self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _sweep(self) -> None:
        with self._guard:
            self._timer = None
            now = time.monotonic()
            idle = [held for held in self._held.values() if not held.count]
            for held in idle:
                if held.until <= now:
                    self._let_go(held)
            if left := [held.until for held in idle if held.until > now]:
                self._wake(min(left) - now)


def _key(held: Held) -> tuple[str, str]:
    return held.entry.repo, held.entry.commit
