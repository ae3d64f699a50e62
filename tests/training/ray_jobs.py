"""Training jobs on the nano model, and a command line for them, so that a test can kill a whole driver.

python -m tests.training.ray_jobs warm_start|grpo NANO STORAGE LOG SECONDS_A_STEP
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from codegrep.config import AdvantageConfig, FunctionConfig, GovernanceConfig, TurnScoresConfig
from codegrep.issues.issue import Issue
from codegrep.rollout.record import Rollout
from codegrep.training.base_model import BaseModel
from codegrep.training.callbacks import OnLog
from codegrep.training.examples import make_examples
from codegrep.training.loops import GRPOJob, LivePolicy, WarmStartJob, grpo_loop, warm_start_loop
from codegrep.training.lora import adapter_sha256
from codegrep.training.ray_loop import TrainingSpec, run_training
from tests.training.made_rollouts import GRPO, GUARD_RAILS, LORA, WARM_START, Made, issues, rollout

RAY = {
    "address": "local",  # never a cluster that happens to run on the machine
    "num_cpus": 2,
    "include_dashboard": False,
    "log_to_driver": False,
    "object_store_memory": 80 * 2**20,
}
STEPS = 6


def open_log(path: str, seconds: float = 0.0) -> OnLog:
    """Appends each step and the worker's process id to a file; waits, so that there is time to kill something."""

    def log(step: int, numbers: dict[str, float]) -> None:
        if "seconds/train" in numbers:  # the closing log of a run
            return
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "pid": os.getpid(), "numbers": numbers}) + "\n")
        time.sleep(seconds)

    return log


def read_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


@dataclass(frozen=True)
class OpenMade:
    lose: Sequence[tuple[int, int]] = ()

    def __call__(self, policy: LivePolicy) -> Made:
        assert policy.model.peft_config
        return Shares(self.lose) if policy.workers > 1 else Made(self.lose)


@dataclass(frozen=True)
class OpenShares:
    """The same rollouts however many workers share them."""

    def __call__(self, policy: LivePolicy) -> Made:
        return Shares()


class Shares(Made):
    """With several workers the places of a step are told apart by the issue, so that any division gives the same."""

    def collect(self, wanted: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        self.steps.append(step)
        return [rollout(issue, f"{step}-{place}") for issue in wanted for place in range(group_size)]


def warm_start_spec(nano: Path, log: Path, seconds: float = 0.0, workers: int = 1) -> TrainingSpec:
    records = [rollout(issue, 0, turns=1 + i % 3) for i, issue in enumerate(issues(12))]
    job = WarmStartJob(
        base=BaseModel(str(nano), "float32"),
        lora=LORA,
        settings=replace(WARM_START, epochs=3, save_every=1),
        examples=make_examples(records, 400).examples,
        seed=0,
        open_log=partial(open_log, str(log), seconds),
    )
    return TrainingSpec(warm_start_loop, {"job": job}, workers=workers, cpus_per_worker=0.5, max_failures=2)


def grpo_spec(nano: Path, log: Path, seconds: float = 0.0, workers: int = 1, collector: object = None) -> TrainingSpec:
    job = GRPOJob(
        base=BaseModel(str(nano), "float32"),
        lora=LORA,
        settings=replace(GRPO, steps=STEPS),
        issues=issues(6),
        reward=FunctionConfig("v3", "codegrep.rewards.designs.v3"),
        advantage=AdvantageConfig("efficiency", "codegrep.rewards.advantage.efficiency"),
        governance=GovernanceConfig("plain", {}, False, False, 0, 15, 0),
        turn_scores=TurnScoresConfig("none", None, {}, True, 0.1),
        guard_rails=GUARD_RAILS,
        max_completion_tokens=64,
        seed=0,
        open_collector=collector or OpenMade(),  # type: ignore[arg-type]
        open_log=partial(open_log, str(log), seconds),
    )
    return TrainingSpec(grpo_loop, {"job": job}, workers=workers, cpus_per_worker=0.5, max_failures=2)


SPECS = {"warm_start": warm_start_spec, "grpo": grpo_spec}


def main() -> None:
    import ray

    kind, nano, storage, log, seconds = sys.argv[1:]
    ray.init(**RAY)
    result = run_training(SPECS[kind](Path(nano), Path(log), float(seconds)), Path(storage), kind)
    print("DONE", result.step, adapter_sha256(result.adapter), flush=True)


if __name__ == "__main__":
    main()
