"""The Ray actors, in a real local Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codegrep.config import SandboxConfig
from codegrep.errors import InfrastructureError
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolStatus
from codegrep.sandbox.actor import RemoteSandbox, _put_right, start_sandboxes
from tests.sandbox.trees import At, Made, tool_limits

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray")
SETTINGS = SandboxConfig(clone_timeout=60, min_free_gib=0, actors=2, max_worktrees=0)
READ = ToolCall("read", {"path": "which.py"})


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    root = str(Path(__file__).parents[2])
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": root}},
    )
    yield
    ray.shutdown()


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    ray.shutdown()
    arguments = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=arguments)
    nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    nodes.wait_for_nodes()
    ray.init(
        address=nodes.address,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parents[2])}},
    )
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def locations(made: Made) -> dict[str, Any]:
    return {name: At(made.local) for name in ("o/n", "a/b", "c/d", "e/f")}


def test_turns_over_actors_that_share_a_root(cluster: None, tmp_path: Path, many: Made) -> None:
    remote = start_sandboxes(2, tmp_path, tool_limits(), SETTINGS, locations(many))

    async def main() -> None:
        turns = [
            remote.run_turn(repo, many.commits[i], [READ, MalformedCall("", "nothing")])
            for repo in ("o/n", "a/b", "c/d", "e/f")
            for i in range(4)
        ]
        for number, results in enumerate(await asyncio.gather(*turns)):
            assert [r.status for r in results] == [ToolStatus.OK, ToolStatus.MODEL_ERROR]
            assert results[0].text.endswith(f"\n1\t{number % 4}")
        stats = await remote.stats()
        assert stats["calls/ok"] == 16 and stats["worktrees/adds"] == 16

    asyncio.run(main())
    remote.close()


def test_indexes_of_the_search_tool_outlive_their_actors(cluster: None, tmp_path: Path, many: Made) -> None:
    remote = start_sandboxes(2, tmp_path, tool_limits(names=["search"]), SETTINGS, locations(many))

    async def ask_all() -> list[Path]:
        calls = [ToolCall("search", {"query": f"f{n}", "k": 3}) for n in range(5)]
        turns = (remote.run_turn(repo, many.commits[0], calls) for repo in ("o/n", "a/b", "c/d", "e/f"))
        for results in await asyncio.gather(*turns):
            assert [r.status for r in results] == [ToolStatus.OK] * 5
            assert all(f"def f{n}()" in r.text for n, r in enumerate(results))
        return sorted((tmp_path / "index").glob("*/*/*.arrow"))

    async def main() -> None:
        kept = await ask_all()
        assert len(kept) == 4  # one repository, one file: each was indexed once
        for handle in remote._handles:
            ray.kill(handle, no_restart=False)
        assert await ask_all() == kept

    asyncio.run(main())
    remote.close()


def test_errors_cross_as_our_own_and_a_dead_actor_is_replaced(cluster: None, tmp_path: Path, many: Made) -> None:
    remote = start_sandboxes(1, tmp_path, tool_limits(), SETTINGS, locations(many))

    async def main() -> None:
        with pytest.raises(InfrastructureError) as caught:
            await remote.run_turn("o/n", "1" * 40, [READ])
        assert type(caught.value) is InfrastructureError and "neither in the clone" in caught.value.what
        assert "\n" not in str(caught.value)
        await remote.prepare("o/n", many.commits[0])
        for handle in remote._handles:
            ray.kill(handle, no_restart=False)
        (result,) = await remote.run_turn("o/n", many.commits[0], [READ])
        assert result.status is ToolStatus.OK
        remote.close()
        with pytest.raises(InfrastructureError, match="lost"):
            await remote.run_turn("o/n", many.commits[0], [READ])

    asyncio.run(main())


def test_a_repository_stays_with_its_actor_and_few_move_when_one_is_added() -> None:
    two, three = RemoteSandbox(["a", "b"]), RemoteSandbox(["a", "b", "c"])
    repos = [f"owner/name{i}" for i in range(300)]
    before, after = [two._number(r) for r in repos], [three._number(r) for r in repos]
    assert before == [RemoteSandbox(["a", "b"])._number(r) for r in repos]
    assert 100 < sum(n == 0 for n in before) < 200 and 60 < sum(n == 2 for n in after) < 140
    assert all(now in (was, 2) for was, now in zip(before, after, strict=True))


def test_a_client_holds_turns_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegrep.sandbox.actor._IN_FLIGHT", 3)
    inside: list[int] = []
    most = 0

    class Slow(RemoteSandbox):
        async def _ask(self, handle: Any, method: str, *arguments: Any) -> Any:
            nonlocal most
            inside.append(1)
            most = max(most, len(inside))
            await asyncio.sleep(0.01)
            inside.pop()
            return []

    async def main() -> None:
        sandbox = Slow(["a"])
        turns = [asyncio.ensure_future(sandbox.run_turn("o/n", "0" * 40, [READ])) for _ in range(20)]
        await asyncio.sleep(0.001)
        turns[10].cancel()  # while it waits
        await asyncio.gather(*turns, return_exceptions=True)
        assert turns[10].cancelled() and sum(t.done() for t in turns) == 20

    asyncio.run(main())
    assert most == 3 and not inside


def test_calls_are_ray_metrics(cluster: None, tmp_path: Path, many: Made) -> None:
    """Ray's metrics keep their values in the process until they are exported, so the actor's class is run here."""
    from codegrep.sandbox.actor import RayMetrics
    from codegrep.sandbox.measure import CallMeasure

    metrics = RayMetrics()
    seen: list[tuple[str, float, dict[str, str]]] = []
    for name in ("_calls", "_timeouts", "_bytes"):
        metric = getattr(metrics, name)
        metric.inc = lambda value, tags, name=name: seen.append((name, value, tags))
    metrics.count(CallMeasure("grep", "ok", 0.01, 0.001, "run", True, 42))
    metrics.count(CallMeasure("", "model_error", 0.01, 0.0, "kept", False, 7))
    assert seen == [
        ("_calls", 1, {"tool": "grep", "status": "ok", "source": "run"}),
        ("_timeouts", 1, {"tool": "grep"}),
        ("_bytes", 42, {"tool": "grep"}),
        ("_calls", 1, {"tool": "unknown", "status": "model_error", "source": "kept"}),
        ("_bytes", 7, {"tool": "unknown"}),
    ]
    remote = start_sandboxes(1, tmp_path, tool_limits(), SETTINGS, locations(many))
    asyncio.run(remote.run_turn("o/n", many.commits[0], [READ, READ]))
    remote.close()


def test_a_remote_sandbox_travels_to_other_workers(cluster: None, tmp_path: Path, many: Made) -> None:
    remote = start_sandboxes(1, tmp_path, tool_limits(), SETTINGS, locations(many))

    @ray.remote(num_cpus=1)
    def use(sandbox: RemoteSandbox, commit: str) -> str:
        return asyncio.run(sandbox.run_turn("o/n", commit, [READ]))[0].text

    assert ray.get(use.remote(remote, many.commits[7])).endswith("\n1\t7")
    remote.close()


def test_actors_that_come_up_elsewhere_are_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handle:
        def __init__(self, where: str) -> None:
            self.node = self
            self.where = where

        def remote(self) -> str:
            return self.where

    killed: list[Handle] = []
    monkeypatch.setattr("ray.get", lambda answers, timeout: answers)
    monkeypatch.setattr("ray.nodes", lambda: [{"NodeID": node, "Alive": node != "gone"} for node in ("a", "b", "gone")])
    monkeypatch.setattr("ray.kill", killed.append)
    monkeypatch.setattr("time.sleep", lambda _: None)
    handles: list[Any] = [Handle("a"), Handle("a"), Handle("a")]
    astray = handles[1]
    comes_up = iter("ab")
    _put_right(handles, ["a", "b", "gone"], lambda _: Handle(next(comes_up)))
    assert [handle.where for handle in handles] == ["a", "b", "a"] and killed[0] is astray and len(killed) == 2


def test_actors_on_every_node_and_a_lost_node(two_nodes: Any, tmp_path: Path, many: Made) -> None:
    remote = start_sandboxes(1, tmp_path, tool_limits(), SETTINGS, locations(many))

    async def main() -> None:
        first = await remote.nodes()
        assert len(first) == 2 == len(set(first))
        turns = [remote.run_turn(repo, many.commits[0], [READ]) for repo in locations(many)]
        assert all(results[0].status is ToolStatus.OK for results in await asyncio.gather(*turns))
        (worker,) = [node for node in two_nodes.list_all_nodes() if not node.head]
        two_nodes.remove_node(worker)
        # Its actor starts anew where there is a node; the trees on the shared disk are there already.
        turns = [remote.run_turn(repo, many.commits[1], [READ]) for repo in locations(many)]
        assert all(results[0].text.endswith("\n1\t1") for results in await asyncio.gather(*turns))
        assert len(set(await remote.nodes())) == 1

    asyncio.run(main())
    remote.close()
