"""A bounded cache of results, with one computation for calls that are made at the same time.

Tools only read and a commit never changes, so a result is a pure function of (repository, commit, tool, arguments). The
rollouts of one prompt ask the same things; often at the same moment, so a computation under way is shared too.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from codegrep.sandbox.tools import Outcome

Key = tuple[str, ...]


@dataclass
class _Pending:
    task: asyncio.Task[Outcome]
    waiting: int = 0


class ResultCache:
    """Least recently used outcomes, up to a number of bytes.

    Args:
        max_bytes: of keys and outcomes, about; 0 keeps nothing (calls at the same time are shared still).
    """

    def __init__(self, max_bytes: int) -> None:
        self.hits = 0
        self.shared = 0
        self.misses = 0
        self.size = 0
        self._max = max_bytes
        self._guard = threading.Lock()
        self._kept: OrderedDict[Key, tuple[Outcome, int]] = OrderedDict()
        self._pending: dict[tuple[Key, int], _Pending] = {}

    def look_up(self, key: Key) -> Outcome | None:
        """Return the kept outcome, or None."""
        with self._guard:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            self.hits += 1
            return found[0]

    async def get(self, key: Key, compute: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Return the kept outcome, or that of a computation under way, or of a new one.

        A computation ends when the last one who waits for it is cancelled.
        """
        if (kept := self.look_up(key)) is not None:
            return kept
        loop = asyncio.get_running_loop()
        place = (key, id(loop))
        pending = self._pending.get(place)
        if pending is None:
            self.misses += 1
            pending = self._pending[place] = _Pending(loop.create_task(self._compute(key, place, compute)))
        else:
            self.shared += 1
        pending.waiting += 1
        try:
            return await asyncio.shield(pending.task)
        finally:
            pending.waiting -= 1
            if pending.waiting == 0 and not pending.task.done():
                # From here on nobody may join it any more.
                if self._pending.get(place) is pending:
                    del self._pending[place]
                pending.task.cancel()

    async def _compute(self, key: Key, place: tuple[Key, int], compute: Callable[[], Awaitable[Outcome]]) -> Outcome:
        try:
            outcome = await compute()
            if outcome.pure:
                self._keep(key, outcome)
            return outcome
        finally:
            mine = self._pending.get(place)
            if mine is not None and mine.task is asyncio.current_task():
                del self._pending[place]

    def _keep(self, key: Key, outcome: Outcome) -> None:
        size = _size(key, outcome)
        if size > self._max:
            return
        with self._guard:
            old = self._kept.pop(key, None)
            self.size += size - (old[1] if old else 0)
            self._kept[key] = (outcome, size)
            while self.size > self._max:
                self.size -= self._kept.popitem(last=False)[1][1]


def _size(key: Key, outcome: Outcome) -> int:
    texts = sum(map(sys.getsizeof, key)) + sys.getsizeof(outcome.text)
    return 400 + texts + sum(250 + len(f.path) + len(f.text) for f in outcome.files)
