"""A thousand rollouts through vLLM in an actor, with a new adapter every fifty: nothing grows, nothing drifts."""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from codegrep.engines.actor import ReplicaResources, start_replicas
from codegrep.engines.adapter import AdapterPackage
from codegrep.engines.engine import Engine, Generation, Sampling
from codegrep.engines.models import load_tokenizer
from codegrep.engines.replicas import RemoteEngine, RetryPolicy
from codegrep.engines.vllm_arguments import environment
from codegrep.engines.vllm_engine import VLLMEngine
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop
from codegrep.rollout.policy import EnginePolicy, ScriptedPolicy, TurnState
from codegrep.rollout.record import Rollout
from codegrep.training.lora import package_adapter
from tests.engines.test_vllm_engine import policy
from tests.engines.vllm_nano import make, spec
from tests.rollout.fakes import AGENT, GREP, ISSUE, TOOLS, MemorySandbox

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (make cpu-engine installs it)"
    ),
]
BATCH, BATCHES = 50, 20


class SearchesThenSpeaks:
    """A scripted first turn with a call, so that the tiny model, which has learned nothing, speaks after tool text."""

    source = "policy"

    def __init__(self, chat: ChatFormat, engine: Engine, sampling: Sampling, seed: int | None) -> None:
        async def write(state: TurnState) -> str:
            return GREP

        self._script, self._model = ScriptedPolicy(chat, write), EnginePolicy(engine, sampling, seed)

    async def next(self, state: TurnState) -> Generation:
        if state.turn == 0:
            said = await self._script.next(state)
            return replace(said, logprobs=(0.0,) * len(said.token_ids))
        return await self._model.next(state)


def test_a_thousand_rollouts(tmp_path: Path) -> None:
    import ray

    model = make(tmp_path)
    chat = ChatFormat(load_tokenizer(model))
    wanted = replace(spec(model), stop_ids=tuple(sorted(chat.stop_ids)))
    packages = [package_adapter(policy(model, 0.1 + 0.1 * n), n) for n in (1, 2)]
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 * 2**20,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parents[2])}},
    )
    try:
        remote = start_replicas(
            1,
            partial(VLLMEngine.start, wanted),
            ReplicaResources(0.5, 0.0, environment(wanted.vllm)),
            RetryPolicy(600, 120, 2),
        )
        measured, greedy = asyncio.run(_soak(remote, chat, packages))
    finally:
        ray.shutdown()
    first, last = measured[3], measured[-1]  # what is made once is there after a few batches
    for name in ("adapters", "actors", "processes"):
        assert last[name] == first[name], (name, first, last)
    assert last["adapters"] == 1
    assert last["open_files"] <= first["open_files"] + 5, (first, last)
    assert last["rss_mib"] <= first["rss_mib"] * 1.05 + 20, (first, last)
    assert greedy[0] == greedy[1]


async def _soak(
    remote: RemoteEngine, chat: ChatFormat, packages: list[AdapterPackage]
) -> tuple[list[dict[str, float]], list[list[list[int]]]]:
    await remote.start()
    loop = RolloutLoop(
        remote, MemorySandbox(), chat, AGENT, TOOLS, context=1024, make_policy=partial(SearchesThenSpeaks, chat)
    )
    measured, greedy = [], []
    for batch in range(BATCHES):
        (receipt,) = await remote.sync(packages[batch % 2])
        # The same seeds under the same weights at the beginning and at the end. One at a time: in a batch, the others
        # change the last bits of the logits.
        if batch in (0, BATCHES - 2):
            single = [await loop.run(ISSUE, Sampling(24, 0.0), seed=seed) for seed in range(3)]
            greedy.append([rollout.completion_ids for rollout in single])
        rollouts: list[Rollout] = await loop.run_many([ISSUE] * BATCH, Sampling(24), seeds=range(BATCH))
        assert all(len(r.turns) >= 2 and not r.error for r in rollouts)
        assert {r.turns[1].weights_version for r in rollouts} == {packages[batch % 2].version}
        measured.append({"adapters": float(receipt.slots), **_measure()})
    return measured, greedy


def _measure() -> dict[str, float]:
    mine: list[Any] = [p for p in psutil.Process().children(recursive=True) if _is_engine(p)]
    return {
        "open_files": float(sum(p.num_fds() for p in mine)),
        "processes": float(len(mine)),
        "rss_mib": sum(p.memory_info().rss for p in mine) / 2**20,
        "actors": float(sum(1 for p in mine if any("EngineActor" in part for part in p.cmdline()))),
    }


def _is_engine(process: Any) -> bool:
    try:
        return any("EngineActor" in part or "EngineCore" in part for part in process.cmdline())
    except psutil.Error:
        return False
