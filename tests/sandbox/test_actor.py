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
from codegrep.sandbox.actor import RemoteSandbox, start_sandboxes
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


def test_a_remote_sandbox_travels_to_other_workers(cluster: None, tmp_path: Path, many: Made) -> None:
    remote = start_sandboxes(1, tmp_path, tool_limits(), SETTINGS, locations(many))

    @ray.remote(num_cpus=1)
    def use(sandbox: RemoteSandbox, commit: str) -> str:
        return asyncio.run(sandbox.run_turn("o/n", commit, [READ]))[0].text

    assert ray.get(use.remote(remote, many.commits[7])).endswith("\n1\t7")
    remote.close()
