"""The calls of a turn on the tree of a commit: leased, executed at the same time, answered in order."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from codegrep.config import SandboxConfig, ToolsConfig
from codegrep.errors import CodegrepError, InfrastructureError
from codegrep.issues.source import RepositoryLocation
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult, ToolStatus
from codegrep.sandbox.cache import ResultCache
from codegrep.sandbox.limits import paper_sandbox, paper_tools
from codegrep.sandbox.measure import CallCounters, CallMeasure
from codegrep.sandbox.repositories import Repositories
from codegrep.sandbox.toolbox import CheckedCall, Toolbox
from codegrep.sandbox.tools import ArgumentError, Outcome
from codegrep.sandbox.tools.tool import fault, mistake
from codegrep.sandbox.worktrees import Lease, Worktrees

# Leases that are taken at the same time; each waits for git or for the disk, mostly.
_LEASING_THREADS = 16
# Seconds from one turn of a prompt's rollouts to the next, mostly less.
_LINGER = 2.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call that was made. checked: None where it cannot be run. at: by the monotonic clock."""

    call: ToolCall
    checked: CheckedCall | None
    at: float


class Sandbox:
    """Executes tool calls. Usable from any number of tasks, in one event loop or one after the other.

    Args:
        worktrees: where trees come from.
        toolbox: the tools; its limits say how many calls a turn and how many at once.
        cache_bytes: bound of the result cache.
        on_call: is told about every call that was answered.
    """

    def __init__(
        self,
        worktrees: Worktrees,
        toolbox: Toolbox,
        cache_bytes: int = 64 << 20,
        on_call: Callable[[CallMeasure], None] | None = None,
    ) -> None:
        self.worktrees = worktrees
        self.toolbox = toolbox
        self._cache = ResultCache(cache_bytes)
        self._counters = CallCounters()
        self._on_call = on_call
        self._places: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )
        self._threads = ThreadPoolExecutor(_LEASING_THREADS, thread_name_prefix="worktree")

    @classmethod
    def under(
        cls,
        root: Path,
        tools: ToolsConfig | None = None,
        sandbox: SandboxConfig | None = None,
        locations: Mapping[str, RepositoryLocation] | None = None,
        on_call: Callable[[CallMeasure], None] | None = None,
    ) -> Sandbox:
        """Return a sandbox with clones, trees and indexes in `root`/bare, /trees and /index; repair the trees.

        Without limits those of the paper hold (see limits.py).
        """
        tools, sandbox = tools or paper_tools(), sandbox or paper_sandbox()
        repositories = Repositories(root / "bare", sandbox.clone_timeout, locations)
        worktrees = Worktrees(
            root / "trees",
            repositories,
            sandbox.min_free_gib,
            sandbox.max_worktrees,
            max_disk_gib=sandbox.max_disk_gib,
            linger=_LINGER,
        )
        worktrees.repair()
        return cls(worktrees, Toolbox(tools, index_folder=root / "index"), on_call=on_call)

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        """Answers every call of a turn, in order, numbered from 1.

        The first `max_calls` calls are executed at the same time, the others are refused; a malformed call is answered
        with what is wrong with it and takes its place in the count. Cancelling ends the calls that nobody else waits
        for.

        Raises:
            InfrastructureError: the tree cannot be had.
        """
        if not any(isinstance(call, ToolCall) for call in calls[: self.toolbox.limits.max_calls]):
            return [self._unexecuted(call, n) for n, call in enumerate(calls, 1)]
        async with self._lease(repo, commit) as lease:
            results = [self._at_once(lease, call, n) for n, call in enumerate(calls, 1)]
            tasks = {
                n: asyncio.ensure_future(self._answer(lease, made, n))
                for n, made in enumerate(results, 1)
                if isinstance(made, _Asked)
            }
            try:
                await asyncio.gather(*tasks.values())
            finally:
                # The lease must outlive every call, also when this turn is cancelled.
                for task in tasks.values():
                    task.cancel()
                await asyncio.gather(*tasks.values(), return_exceptions=True)
            return [tasks[n].result() if isinstance(made, _Asked) else made for n, made in enumerate(results, 1)]

    async def prepare(self, repo: str, commit: str) -> None:
        """Make the tree of a commit, so that the first turn need not wait for it.

        Raises:
            InfrastructureError: the tree cannot be had.
        """
        async with self._lease(repo, commit):
            pass

    def stats(self) -> dict[str, float]:
        """Counters since the start; measure.summary makes metrics of two of them."""
        return {
            **self._counters.totals(),
            "cache/hits": float(self._cache.hits),
            "cache/shared": float(self._cache.shared),
            "cache/misses": float(self._cache.misses),
            "cache/bytes": float(self._cache.size),
            "worktrees/adds": float(self.worktrees.counts.adds),
        }

    def close(self) -> None:
        """End all leases. The trees stay."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.worktrees.close()

    def _at_once(self, lease: Lease, call: ToolCall | MalformedCall, number: int) -> ToolResult | _Asked:
        """Return what can be said without running anything: mistakes in the call itself, and results that are kept."""
        if isinstance(call, MalformedCall) or number > self.toolbox.limits.max_calls:
            return self._unexecuted(call, number)
        asked = time.monotonic()
        try:
            checked = self.toolbox.check(call)
        except ArgumentError as error:
            return self._measured(mistake(str(error)), _Asked(call, None, asked), number, "run")
        made = _Asked(call, checked, asked)
        kept = self._cache.look_up((lease.digest, checked.key))
        return made if kept is None else self._measured(kept, made, number, "kept")

    async def _answer(self, lease: Lease, asked: _Asked, number: int) -> ToolResult:
        checked = asked.checked
        assert checked is not None
        seconds = waited = 0.0
        source = "shared"

        async def compute() -> Outcome:
            nonlocal seconds, waited, source
            source = "run"
            async with contextlib.nullcontext() if getattr(checked.tool, "has_own_queue", False) else self._place():
                began = time.monotonic()
                waited = began - asked.at
                try:
                    return await self._believed(lease, await self.toolbox.execute(lease.path, checked))
                finally:
                    seconds = time.monotonic() - began

        key = (lease.digest, checked.key)
        if (kept := self._cache.look_up(key)) is not None:  # since the turn began, by another one
            return self._measured(kept, asked, number, "kept")
        outcome = await self._cache.get(key, compute)
        return self._measured(outcome, asked, number, source, seconds, waited)

    async def _believed(self, lease: Lease, outcome: Outcome) -> Outcome:
        """Return the outcome, unless it found nothing in a tree that was changed under it."""
        if outcome.files or outcome.status is ToolStatus.INFRASTRUCTURE:
            return outcome
        if await asyncio.get_running_loop().run_in_executor(None, lease.is_unchanged):
            return outcome
        return fault(f"{lease.path} was changed while it was searched")

    def _measured(
        self, outcome: Outcome, asked: _Asked, number: int, source: str, seconds: float = 0.0, waited: float = 0.0
    ) -> ToolResult:
        size, took = len(outcome.text.encode("utf-8", "replace")), time.monotonic() - asked.at
        tool = asked.checked.tool.name if asked.checked is not None else ""
        measure = CallMeasure(tool, outcome.status.value, took, waited, source, outcome.timed_out, size)
        self._counters.add(measure)
        if self._on_call is not None:
            self._on_call(measure)
        return self.toolbox.result(outcome, asked.call, number, seconds)

    def _unexecuted(self, call: ToolCall | MalformedCall, number: int) -> ToolResult:
        if number > self.toolbox.limits.max_calls:
            self._counters.refused(ToolStatus.REFUSED.value)
        else:
            self._counters.malformed()
        return self.toolbox.unexecuted(call, number)

    @contextlib.asynccontextmanager
    async def _lease(self, repo: str, commit: str) -> AsyncIterator[Lease]:
        lease = await self._leased(repo, commit)
        try:
            yield lease
        finally:
            lease.release()

    async def _leased(self, repo: str, commit: str) -> Lease:
        try:
            if (again := self.worktrees.lease_again(repo, commit)) is not None:
                return again
            making = asyncio.get_running_loop().run_in_executor(self._threads, self.worktrees.lease, repo, commit)
            try:
                return await asyncio.shield(making)
            except asyncio.CancelledError:
                # git goes on in its thread; the lease that comes of it has no owner any more.
                making.add_done_callback(_release)
                raise
        except InfrastructureError:
            raise
        except CodegrepError as error:
            raise InfrastructureError(error.what, error.fix) from error
        except (OSError, RuntimeError) as error:
            raise InfrastructureError(f"no worktree of {repo} at {commit[:12]} ({error})") from error

    def _place(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            self._places[loop] = asyncio.Semaphore(self.toolbox.limits.concurrency)
        return self._places[loop]


def _release(making: asyncio.Future[Lease]) -> None:
    if not making.cancelled() and making.exception() is None:
        making.result().release()
