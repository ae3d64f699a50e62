"""Training through an engine with weights of its own: real vLLM, real Ray actors, a real TRL step on a tiny model."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from codegrep.config import SyncConfig
from codegrep.engines.actor import ReplicaResources, start_replicas
from codegrep.engines.adapter import AdapterPackage, AdapterReceipt
from codegrep.engines.engine import GenerationRequest, Sampling
from codegrep.engines.replicas import RemoteEngine, RetryPolicy
from codegrep.engines.vllm_arguments import environment
from codegrep.engines.vllm_engine import VLLMEngine
from codegrep.engines.weight_sync import FollowingReplicas
from codegrep.errors import InfrastructureError
from codegrep.issues.issue import Issue
from codegrep.rewards.outcome import Outcome, RewardParts
from codegrep.rewards.signal import TrainingSignal
from codegrep.rollout.record import Rollout, Turn
from codegrep.training.base_model import BaseModel
from codegrep.training.callbacks import StepLog
from codegrep.training.grpo import CodegrepGRPOTrainer
from codegrep.training.lora import package_adapter
from codegrep.training.scoring import add_scoring
from tests.engines.vllm_nano import make, spec
from tests.training.made_rollouts import GRPO, LORA, issues, prompt_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (make cpu-engine installs it)"
    ),
]
LONGEST = 32
STOP_IDS = tuple(range(2, 52))
PATIENCE = RetryPolicy(start_seconds=600, request_seconds=120, attempts=30)


class Forgetful(VLLMEngine):
    """An engine that says yes to every adapter after the first and keeps what it has."""

    async def load_adapter(self, package: AdapterPackage) -> AdapterReceipt:
        if self._adapter is None:
            return await super().load_adapter(package)
        found = await self._llm.collective_rpc("read_adapter", args=(1,))
        return AdapterReceipt(package.version, package.sha256, found[0]["factors"], found[0]["dtype"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty tokens that end a turn and share one long embedding: about one token in seven ends it, and an adapter can
    learn not to. With random weights and one such token the length has nothing to learn from."""
    folder = make(tmp_path_factory.mktemp("models"))
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        ends = model.lm_head.weight[STOP_IDS[0] : STOP_IDS[-1] + 1]
        ends.copy_(35 * ends.mean(0, keepdim=True).expand_as(ends))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

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


def replicas(model: Path, engine: type[VLLMEngine] = VLLMEngine) -> RemoteEngine:
    wanted = replace(spec(model), stop_ids=STOP_IDS)
    resources = ReplicaResources(0.5, 0.0, environment(wanted.vllm))
    return start_replicas(1, partial(engine.start, wanted), resources, PATIENCE)


@dataclass
class FromEngine:
    """Collector of one-turn rollouts; the engine follows the policy."""

    remote: RemoteEngine
    policy: Any = None
    sync: SyncConfig = field(default_factory=SyncConfig)
    follower: FollowingReplicas | None = None
    said: dict[str, float] | None = None
    asked: threading.Event = field(default_factory=threading.Event)
    collected: list[Rollout] = field(default_factory=list)

    def collect(self, wanted: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        made = self.loop.run_until_complete(self._collect(wanted, group_size, step))
        self.collected += made
        return made

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if not hasattr(self, "_loop"):
            self._loop = asyncio.new_event_loop()
        return self._loop

    async def _collect(self, wanted: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        if self.follower is None:
            self.follower = FollowingReplicas(self.remote, partial(package_adapter, self.policy), self.sync)
        self.said = await self.follower.follow(step)
        self.asked.set()
        places = [(issue, place) for issue in wanted for place in range(group_size)]
        return await asyncio.gather(*(self._one(issue, step * 1000 + place) for issue, place in places))

    async def _one(self, issue: Issue, seed: int) -> Rollout:
        assert self.follower is not None
        prompt = prompt_of(issue)
        said = await self.follower.generate(GenerationRequest(tuple(prompt), Sampling(LONGEST, 1.0), seed))
        ids = list(said.token_ids)
        turn = Turn(0, len(ids), "", weights_version=said.weights_version)
        return Rollout(
            f"{issue.instance_id}-{seed}", issue.instance_id, issue.repo, issue.base_commit, "policy", prompt, ids,
            [1] * len(ids), list(said.logprobs), [turn], [], False, list(issue.gold_files), "answer",
        )  # fmt: skip

    def metrics(self) -> dict[str, float]:
        return dict(self.said or {})


class Length:
    """A toy reward: the share of the budget that a rollout has used. Nothing else has to be learned."""

    def __call__(self, outcome: Outcome) -> RewardParts:
        return RewardParts(outcome.generated_tokens / LONGEST, {})


def trainer_on(model: Path, folder: Path, source: FromEngine, steps: int, **changes: Any) -> CodegrepGRPOTrainer:
    base, tokenizer = BaseModel(str(model), "float32").load()
    add_scoring(base)
    settings = replace(GRPO, steps=steps, group_size=8, learning_rate=1e-2, kl=0.0, save_every=1000, **changes)
    made = CodegrepGRPOTrainer(
        model=base,
        tokenizer=tokenizer,
        issues=issues(2),
        collect=source.collect,
        collected=source.metrics,
        signal=TrainingSignal(Length()),
        lora=LORA,
        settings=settings,
        max_completion_tokens=LONGEST,
        output_dir=folder,
        seed=0,
        sync=replace(source.sync, max_logprob_gap=1e-2),
    )
    source.policy = made.policy
    return made


def test_a_reward_rises_through_the_engine_and_the_gap_stays_small(cluster: None, model: Path, tmp_path: Path) -> None:
    remote = replicas(model)
    try:
        seen: dict[int, dict[str, float]] = {}
        trainer = trainer_on(model, tmp_path, FromEngine(remote), steps=30)
        trainer.add_callback(StepLog(lambda step, numbers: seen.setdefault(step, numbers), trainer.grpo_names))
        trainer.train()
    finally:
        remote.end()
    rewards = [seen[step]["reward/total"] for step in range(1, 31)]
    assert rewards[0] < 0.5 and sum(rewards[-5:]) / 5 > 0.8, rewards
    for step in range(1, 31):
        assert seen[step]["policy/logprob_gap"] < 1e-3, (step, seen[step]["policy/logprob_gap"])
        assert seen[step]["policy/ess"] > 0.999
        assert seen[step]["engine/weights_version"] == step - 1 and seen[step]["engine/staleness"] == 0


def test_a_skipped_sync_stops_training(cluster: None, model: Path, tmp_path: Path) -> None:
    remote = replicas(model, Forgetful)
    try:
        with pytest.raises(InfrastructureError, match="does not have the trainer's weights after a sync"):
            trainer_on(model, tmp_path, FromEngine(remote), steps=3).train()
    finally:
        remote.end()


def test_an_engine_that_is_killed_twenty_times_costs_no_rollout(cluster: None, model: Path, tmp_path: Path) -> None:
    remote, killed, over = replicas(model), [], threading.Event()
    source = FromEngine(remote)

    def hunt() -> None:
        # One in each step, while its rollouts are under way; by turns the process with the model and the actor.
        while len(killed) < 20 and not over.is_set():
            if source.asked.wait(1):
                source.asked.clear()
                time.sleep(0.05)
                for pid in _engine_cores():
                    os.kill(_parent(pid) if len(killed) % 2 else pid, signal.SIGKILL)
                    killed.append(pid)

    hunter = threading.Thread(target=hunt)
    try:
        seen: dict[int, dict[str, float]] = {}
        trainer = trainer_on(model, tmp_path, source, steps=22)
        trainer.add_callback(StepLog(lambda step, numbers: seen.setdefault(step, numbers), trainer.grpo_names))
        hunter.start()
        trainer.train()
    finally:
        over.set()
        hunter.join()
        remote.end()
    assert len(killed) == len(set(killed)) == 20
    assert remote.counts["restarts"] >= 20 and remote.counts["retries"] >= 20, remote.counts
    assert sorted(seen) == list(range(1, 23)) and len(source.collected) == 22 * 16
    assert all(r.exit_cause == "answer" and r.completion_ids and not r.error for r in source.collected)
    for step, numbers in seen.items():
        assert numbers["policy/logprob_gap"] < 1e-3 and numbers["engine/weights_version"] == step - 1
    time.sleep(3)
    assert not _engine_cores()  # none has outlived its replica


def _engine_cores() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            core = entry.name.isdigit() and "EngineCore" in (entry / "cmdline").read_text().replace("\0", " ")
            if core and _ancestor(int(entry.name), os.getpid()):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _ancestor(pid: int, ancestor: int) -> bool:
    """Whether `ancestor`'s Ray started it: Ray's own processes are children of the driver."""
    while pid > 1:
        if pid == ancestor:
            return True
        pid = _parent(pid)
    return False
