"""The sandbox as Ray actors, thin: all of the work is in Sandbox. The only module of this room that imports ray."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegrep.config import SandboxConfig, ToolsConfig
from codegrep.errors import CodegrepError, InfrastructureError
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult
from codegrep.sandbox.repositories import Location
from codegrep.sandbox.sandbox import Sandbox

# Calls in flight in one actor; the sandbox's own semaphore says how many of them are executed.
_MAX_CONCURRENCY = 1000
# A turn is asked for again once when its actor died under it: tools only read, so nothing is done twice.
_ATTEMPTS = 2


class SandboxActor:
    """One sandbox in a process of its own. Actors of one node may share a root; so may any other process."""

    def __init__(
        self, root: str, tools: ToolsConfig, sandbox: SandboxConfig, locations: Mapping[str, Location] | None
    ) -> None:
        self._sandbox = Sandbox.under(Path(root), tools, sandbox, locations)

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        """See Sandbox.run_turn."""
        return await self._sandbox.run_turn(repo, commit, calls)

    async def prepare(self, repo: str, commit: str) -> None:
        """See Sandbox.prepare."""
        await self._sandbox.prepare(repo, commit)

    async def stats(self) -> dict[str, float]:
        """See Sandbox.stats."""
        return self._sandbox.stats()


class RemoteSandbox:
    """Sandbox actors behind the interface of one Sandbox. Can be sent to other Ray workers.

    A repository always goes to the same actor, so its trees and its cache are on one node.
    """

    def __init__(self, handles: Sequence[Any]) -> None:
        if not handles:
            raise ValueError("at least one actor is needed")
        self._handles = list(handles)

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        """See Sandbox.run_turn. Cancelling ends the calls in the actor.

        Raises:
            InfrastructureError: the tree cannot be had, or the actor died twice.
        """
        results: list[ToolResult] = await self._ask(self._handle(repo), "run_turn", repo, commit, list(calls))
        return results

    async def prepare(self, repo: str, commit: str) -> None:
        """See Sandbox.prepare."""
        await self._ask(self._handle(repo), "prepare", repo, commit)

    async def stats(self) -> dict[str, float]:
        """The counters of all actors, added up."""
        total: Counter[str] = Counter()
        for counts in await asyncio.gather(*(self._ask(handle, "stats") for handle in self._handles)):
            total.update(counts)
        return dict(total)

    def close(self) -> None:
        """Ends the actors; the kernel ends their leases."""
        import ray

        for handle in self._handles:
            ray.kill(handle)

    def _handle(self, repo: str) -> Any:
        return self._handles[zlib.crc32(repo.encode("utf-8", "surrogatepass")) % len(self._handles)]

    async def _ask(self, handle: Any, method: str, *arguments: Any) -> Any:
        import ray
        from ray.exceptions import RayActorError, RayTaskError

        for _ in range(_ATTEMPTS):
            reference = getattr(handle, method).remote(*arguments)
            try:
                return await reference
            except asyncio.CancelledError:
                ray.cancel(reference, recursive=False)
                raise
            except RayTaskError as error:
                cause = error.cause
                if isinstance(cause, CodegrepError):
                    raise InfrastructureError(cause.what, cause.fix) from None
                raise InfrastructureError(f"a sandbox actor failed ({type(cause).__name__}: {cause})") from None
            except RayActorError as error:
                lost = str(error).strip().partition("\n")[0]
        raise InfrastructureError(f"the sandbox actor was lost {_ATTEMPTS} times ({lost})", "See Ray's logs.")


def start_sandboxes(
    count: int,
    root: Path,
    tools: ToolsConfig,
    sandbox: SandboxConfig,
    locations: Mapping[str, Location] | None = None,
    num_cpus: float = 0,
    max_restarts: int = 10,
) -> RemoteSandbox:
    """Starts actors in the running Ray, spread over its nodes.

    Args:
        root: folder of clones and trees, on every node.
        locations: where a node that lacks a clone can have it; without it only what `root`/bare holds can be used.
        num_cpus: CPUs that Ray sets aside for an actor. 0: searches use what is free.
    """
    import ray

    options = ray.remote(SandboxActor).options(
        num_cpus=num_cpus,
        max_restarts=max_restarts,
        max_concurrency=_MAX_CONCURRENCY,
        scheduling_strategy="SPREAD",
    )
    return RemoteSandbox([options.remote(str(root), tools, sandbox, locations) for _ in range(max(1, count))])
