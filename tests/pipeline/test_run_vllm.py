"""The whole experiment with engine=vllm: GRPO through replicas in Ray actors, evaluation with an adapter."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable

import pytest

from codegrep.rollout.store import read_rollouts
from tests.engines.vllm_nano import make
from tests.pipeline.experiments import STEPS, Experiment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (make cpu-engine installs it)"
    ),
]


def test_every_stage_runs_through_vllm(shared_experiment: Callable[..., Experiment]) -> None:
    experiment = shared_experiment("engine=vllm", "engine.vllm.kv_cache_gib=0.1", "engine.vllm.threads=1")
    (experiment.folder / "models").mkdir(exist_ok=True)
    run = experiment.run(f"model.path={make(experiment.folder / 'models')}", timeout=3000)
    assert run.process.returncode == 0, run.stdout + run.stderr
    artifacts = {path.name.rpartition("-")[0]: path for path in (experiment.outputs / "artifacts").iterdir()}
    rollouts = read_rollouts(artifacts["train"] / "rollouts")
    assert {r.step for r in rollouts} == set(range(STEPS))
    for rollout in rollouts:
        assert rollout.error == "" and {turn.weights_version for turn in rollout.turns} == {rollout.step}
        assert len(rollout.logprobs) == len(rollout.completion_ids)
    (record,) = experiment.mlflow_runs()
    metrics = record.data.metrics
    assert metrics["engine/weights_version"] == STEPS - 1 and metrics["engine/staleness"] == 0
    assert metrics["policy/logprob_gap"] < 1e-2 and metrics["policy/ess"] > 0.99
    for model in ("base", "warm_start", "trained"):
        said = json.loads((artifacts[f"measured-{model}"] / "artifact.json").read_text(encoding="utf-8"))
        assert said["summary"]["lost"] == 0
    assert run.gone(20) == {}


def test_what_no_node_can_hold_is_said_before_anything_starts(shared_experiment: Callable[..., Experiment]) -> None:
    experiment = shared_experiment("engine=vllm", "engine.vllm.cpus=64")
    run = experiment.run(f"model.path={make(experiment.folder)}", timeout=900)
    assert run.process.returncode == 2
    assert "engine.vllm.cpus" in run.stdout + run.stderr and "64" in run.stdout + run.stderr
