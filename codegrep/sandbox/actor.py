"""The sandbox as Ray actors, thin: all of the work is in Sandbox. The only module of this room that imports ray."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from codegrep.config import SandboxConfig, ToolsConfig
from codegrep.errors import CodegrepError, InfrastructureError
from codegrep.issues.source import RepositoryLocation
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult
from codegrep.sandbox.measure import CallMeasure
from codegrep.sandbox.sandbox import Sandbox

_log = logging.getLogger(__name__)
# Calls in flight in one actor; the sandbox's own semaphore says how many of them are executed.
_MAX_CONCURRENCY = 1000
# Turns that one client has under way at each actor; more wait at the client, so that a slow actor holds back those who
# ask instead of collecting their questions.
_IN_FLIGHT = 256
# Upper ends of the buckets of Ray's histograms, seconds.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# A turn is asked for again once when its actor died under it: tools only read, so nothing is done twice.
_ATTEMPTS = 2
# Ray notices a lost node after half a minute, and starts its actors anew after that.
_RESTART_SECONDS = 120.0
# How often an actor that came up on another node is started anew, and how long it may take to come up.
_PLACINGS = 5
_START_SECONDS = 120.0


class RayMetrics:
    """Calls as Ray's own metrics (Prometheus, Ray's dashboard); Ray adds node and worker to each."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter as RayCounter
        from ray.util.metrics import Histogram

        tags = ("tool",)
        self._calls = RayCounter("codegrep_sandbox_calls", "Tool calls answered.", ("tool", "status", "source"))
        self._timeouts = RayCounter("codegrep_sandbox_timeouts", "Tool calls that met their deadline.", tags)
        self._bytes = RayCounter("codegrep_sandbox_result_bytes", "Text of the results.", tags)
        self._seconds = Histogram(
            "codegrep_sandbox_call_seconds", "From question to answer.", boundaries=list(_BOUNDS), tag_keys=tags
        )
        self._waited = Histogram(
            "codegrep_sandbox_queue_seconds", "Wait for a place.", boundaries=list(_BOUNDS), tag_keys=tags
        )

    def count(self, call: CallMeasure) -> None:
        """See Sandbox: on_call."""
        tags = {"tool": call.tool or "unknown"}
        self._calls.inc(1, {**tags, "status": call.status, "source": call.source})
        self._seconds.observe(call.seconds, tags)
        if call.timed_out:
            self._timeouts.inc(1, tags)
        if call.bytes:
            self._bytes.inc(call.bytes, tags)
        if call.source == "run":
            self._waited.observe(call.waited, tags)


class SandboxActor:
    """One sandbox in a process of its own. Actors of one node may share a root; so may any other process."""

    def __init__(
        self, root: str, tools: ToolsConfig, sandbox: SandboxConfig, locations: Mapping[str, RepositoryLocation] | None
    ) -> None:
        self._sandbox = Sandbox.under(Path(root), tools, sandbox, locations, RayMetrics().count)

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        """See Sandbox.run_turn."""
        return await self._sandbox.run_turn(repo, commit, calls)

    async def prepare(self, repo: str, commit: str) -> None:
        """See Sandbox.prepare."""
        await self._sandbox.prepare(repo, commit)

    async def stats(self) -> dict[str, float]:
        """See Sandbox.stats."""
        return self._sandbox.stats()

    async def node(self) -> str:
        """Ray's id of the node that this actor runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())


class RemoteSandbox:
    """Sandbox actors behind the interface of one Sandbox. Can be sent to other Ray workers.

    A repository always goes to the same actor, so its trees and its cache are on one node; another number of
    actors moves only the repositories that it must (rendezvous hashing).
    """

    def __init__(self, handles: Sequence[Any]) -> None:
        if not handles:
            raise ValueError("at least one actor is needed")
        self._handles = list(handles)
        self._places: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[asyncio.Semaphore]] = (
            weakref.WeakKeyDictionary()
        )

    def __reduce__(self) -> tuple[type[RemoteSandbox], tuple[list[Any]]]:
        return RemoteSandbox, (self._handles,)

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        """See Sandbox.run_turn. Cancelling ends the calls in the actor.

        Raises:
            InfrastructureError: the tree cannot be had, or the actor died twice.
        """
        number = self._number(repo)
        async with self._in_flight(number):
            results: list[ToolResult] = await self._ask(self._handles[number], "run_turn", repo, commit, list(calls))
        return results

    async def prepare(self, repo: str, commit: str) -> None:
        """See Sandbox.prepare."""
        number = self._number(repo)
        async with self._in_flight(number):
            await self._ask(self._handles[number], "prepare", repo, commit)

    async def stats(self) -> dict[str, float]:
        """Return the counters of all actors, added up."""
        total: Counter[str] = Counter()
        for counts in await asyncio.gather(*(self._ask(handle, "stats") for handle in self._handles)):
            total.update(counts)
        return dict(total)

    async def nodes(self) -> list[str]:
        """Ray's ids of the nodes that the actors run on, in the order of the actors."""
        return list(await asyncio.gather(*(self._ask(handle, "node") for handle in self._handles)))

    def close(self) -> None:
        """End the actors; the kernel ends their leases."""
        import ray

        for handle in self._handles:
            ray.kill(handle)

    def _number(self, repo: str) -> int:
        name = repo.encode("utf-8", "surrogatepass")
        return max(range(len(self._handles)), key=lambda i: hashlib.sha256(b"%d/%s" % (i, name)).digest())

    def _in_flight(self, number: int) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            self._places[loop] = [asyncio.Semaphore(_IN_FLIGHT) for _ in self._handles]
        return self._places[loop][number]

    async def _ask(self, handle: Any, method: str, *arguments: Any) -> Any:
        import ray
        from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

        lost, deaths, pause, deadline = "", 0, 0.1, time.monotonic() + _RESTART_SECONDS
        while deaths < _ATTEMPTS and time.monotonic() < deadline:
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
            except ActorUnavailableError as error:  # it is being restarted, perhaps on another node
                lost = _first_line(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 2.0)
            except RayActorError as error:
                lost = _first_line(error)
                deaths += 1
        raise InfrastructureError(f"the sandbox actor was lost ({lost})", "See Ray's logs.")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def start_sandboxes(
    count: int,
    root: Path,
    tools: ToolsConfig,
    sandbox: SandboxConfig,
    locations: Mapping[str, RepositoryLocation] | None = None,
    num_cpus: float = 0,
    max_restarts: int = 10,
) -> RemoteSandbox:
    """Start actors on every node of the running Ray; with several nodes, waits until each is where it belongs.

    Args:
        count: actors on each node.
        root: folder of clones and trees, on every node.
        locations: where a node that lacks a clone can have it; without it only what `root`/bare holds can be used.
        num_cpus: CPUs that Ray sets aside for an actor. 0: searches use what is free.
    """
    import ray

    actor = ray.remote(SandboxActor)
    options = {"num_cpus": num_cpus, "max_restarts": max_restarts, "max_concurrency": _MAX_CONCURRENCY}

    def start(node: str) -> Any:
        return actor.options(**options, scheduling_strategy=_place(node)).remote(str(root), tools, sandbox, locations)

    # Nodes without CPUs (a head that only coordinates) compute nothing.
    nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0)
    wanted = [node for _ in range(max(1, count)) for node in nodes or [""]]
    handles = [start(node) for node in wanted]
    if len(nodes) > 1:
        _put_right(handles, wanted, start)
    return RemoteSandbox(handles)


def _place(node: str) -> Any:
    """Soft: an actor whose node is lost moves. A hard one would be lost with it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=True) if node else "SPREAD"


def _put_right(handles: list[Any], wanted: Sequence[str], start: Callable[[str], Any]) -> None:
    """Start those actors anew that came up elsewhere.

    A node that joined a moment ago is not known to every other one yet, and a soft wish for an unknown node is not
    heeded.
    """
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError

    for attempt in range(_PLACINGS):
        try:
            where = ray.get([handle.node.remote() for handle in handles], timeout=_START_SECONDS)
        except (GetTimeoutError, RayActorError) as error:
            _log.warning("sandbox actors did not all come up (%s)", _first_line(error))
            return
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        astray = [n for n, node in enumerate(wanted) if where[n] != node and node in alive]
        if not astray:
            return
        if attempt:
            time.sleep(1.0)
        for number in astray:
            ray.kill(handles[number])
            handles[number] = start(wanted[number])
    _log.warning("Ray did not put every sandbox actor on its node; a node without one asks another's")
