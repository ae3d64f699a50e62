"""Replicas in real Ray actors, with engines that die, hang and lie."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

from codegrep.config import SyncConfig
from codegrep.engines.actor import ReplicaResources, start_replicas
from codegrep.engines.engine import Generation, GenerationRequest
from codegrep.engines.replicas import RemoteEngine, RetryPolicy
from codegrep.engines.weight_sync import FollowingReplicas
from codegrep.errors import InfrastructureError
from tests.engines.fake_replicas import SAMPLING, build, package, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # actors that die and start again, many times
PATIENCE = RetryPolicy(start_seconds=120, request_seconds=60, attempts=4)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 * 2**20,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parents[2])}},
    )
    yield
    ray.shutdown()


def with_replicas(folder: Path, count: int, work: Any, patience: RetryPolicy = PATIENCE) -> Any:
    remote = start_replicas(count, partial(build, folder), ReplicaResources(0.5), patience)

    async def run() -> Any:
        await remote.start()
        return await work(remote)

    try:
        return asyncio.run(run())
    finally:
        remote.end()


def ask(remote: RemoteEngine, first: int, prefix_group: int | None = None) -> Coroutine[Any, Any, Generation]:
    return remote.generate(GenerationRequest((first, 5), SAMPLING, seed=1, prefix_group=prefix_group))


def test_misdeeds_cost_no_request(cluster: None, tmp_path: Path) -> None:
    async def work(remote: RemoteEngine) -> None:
        await remote.sync(package(1))
        for misdeed in ("die", "garbage"):
            (tmp_path / misdeed).touch()
            answers = await asyncio.gather(*(ask(remote, n) for n in range(12)))
            assert [a.token_ids[0] for a in answers] == list(range(12))
            # also the replica that was restarted has the adapter again
            assert {a.weights_version for a in answers} == {1}
            assert not (tmp_path / misdeed).exists()
        assert remote.counts["retries"] >= 2 and remote.counts["restarts"] >= 1
        await remote.start()
        copy = pickle.loads(pickle.dumps(remote))
        assert (await ask(copy, 3)).weights_version == 1

    with_replicas(tmp_path, 2, work)
    assert len(set(started(tmp_path))) >= 4


def test_a_replica_that_hangs_is_restarted(cluster: None, tmp_path: Path) -> None:
    async def work(remote: RemoteEngine) -> None:
        (tmp_path / "hang").touch()
        assert (await ask(remote, 9)).token_ids[0] == 9
        assert remote.counts["restarts"] == 1

    with_replicas(tmp_path, 1, work, RetryPolicy(120, 4, 3))


def test_a_replica_whose_core_dies_outside_a_request_is_started_again(cluster: None, tmp_path: Path) -> None:
    async def work(remote: RemoteEngine) -> None:
        await remote.sync(package(1))
        (tmp_path / "lose").touch()
        (tmp_path / "stillborn").touch()
        assert [r.version for r in await remote.sync(package(2))] == [2]
        assert (await ask(remote, 9)).weights_version == 2

    with_replicas(tmp_path, 1, work, RetryPolicy(60, 20, 3))
    assert len(set(started(tmp_path))) == 3


def test_kin_share_a_replica_and_others_are_spread(cluster: None, tmp_path: Path) -> None:
    async def work(remote: RemoteEngine) -> None:
        prefix_group = await asyncio.gather(*(ask(remote, n, prefix_group=4) for n in range(6)))
        assert len({a.token_ids[1] for a in prefix_group}) == 1
        strangers = await asyncio.gather(*(ask(remote, n) for n in range(6)))
        assert len({a.token_ids[1] for a in strangers}) == 2
        crowd = await asyncio.gather(*(ask(remote, n, prefix_group=4) for n in range(40)))
        assert len({a.token_ids[1] for a in crowd}) == 2

    with_replicas(tmp_path, 2, work)


def test_a_sync_that_is_skipped_makes_the_guard_fire(cluster: None, tmp_path: Path) -> None:
    async def work(remote: RemoteEngine) -> None:
        receipts = await remote.sync(package(1))
        assert [r.version for r in receipts] == [1]
        (tmp_path / "forget").touch()  # the engine says yes and keeps what it has
        with pytest.raises(InfrastructureError, match="does not have the trainer's weights after a sync"):
            await remote.sync(package(2))

    with_replicas(tmp_path, 1, work)


def test_staleness_is_bounded_and_recorded(cluster: None, tmp_path: Path) -> None:
    async def work(remote: RemoteEngine) -> None:
        engine = FollowingReplicas(remote, package, SyncConfig(max_staleness=2))
        seen = []
        for step in range(6):
            numbers = await engine.follow(step)
            answer = await engine.generate(GenerationRequest((1,), SAMPLING))
            await engine.rest()
            assert answer.weights_version == numbers["engine/weights_version"]
            seen.append((answer.weights_version, numbers["engine/staleness"]))
        assert seen == [(0, 0), (0, 1), (0, 2), (3, 0), (3, 1), (3, 2)]
        strict = FollowingReplicas(remote, package, SyncConfig())
        assert [(await strict.follow(step))["engine/staleness"] for step in (7, 8)] == [0, 0]

    with_replicas(tmp_path, 1, work)


def test_killed_twenty_times_and_nothing_is_lost(cluster: None, tmp_path: Path) -> None:
    killed: list[int] = []

    async def work(remote: RemoteEngine) -> None:
        await remote.sync(package(1))
        done = asyncio.Event()

        async def killer() -> None:
            while len(killed) < 20 and not done.is_set():
                alive = [pid for pid in started(tmp_path) if pid not in killed]
                if len(alive) >= 1:
                    os.kill(alive[-1], signal.SIGKILL)
                    killed.append(alive[-1])
                await asyncio.sleep(0.3)

        async def rollout(n: int) -> list[Generation]:
            turns = []
            while len(killed) < 20:  # a rollout of many turns
                turns.append(await ask(remote, n))
            return turns

        hunt = asyncio.create_task(killer())
        rollouts = await asyncio.gather(*(rollout(n) for n in range(8)))
        done.set()
        await hunt
        assert all(turn.token_ids[0] == n and turn.weights_version == 1 for n, r in enumerate(rollouts) for turn in r)

    with_replicas(tmp_path, 2, work, RetryPolicy(120, 60, 50))
    assert len(killed) == 20
