"""The whole experiment through the real command line, on a generated repository and the nano model."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegrep.protocol.exit_cause import ExitCause
from codegrep.rollout.record import Rollout
from codegrep.rollout.store import read_rollouts
from tests.pipeline.experiments import HELD_OUT, LATENCY, STEPS, Experiment, Running

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(3600)]  # whole runs; seconds on a busy machine
STAGES = ("prepare", "warm_start", "train", "evaluate", "report")
MODELS = ("base", "warm_start", "trained")
RETRIEVERS = {
    *MODELS,
    *(f"{name}_top{k}" for name in ("bm25", "bm25_no_tests") for k in (1, 2)),
    *("hybrid_top1", "first_row", "oracle", "oracle_met"),
}
CURVES = (
    "reward/total",
    "policy/kl",
    "policy/entropy",
    "policy/clip_ratio_region",
    "completions/mean_length",
    "completions/clipped_ratio",
    "group/dead_rate",
    "optim/grad_norm",
    "rollout/turns",
    "rollout/calls_per_turn",
    "errors/infrastructure",
    "seconds/generation",
    "seconds/update",
)


@pytest.fixture(scope="module")
def experiment(shared_experiment: Callable[..., Experiment]) -> Experiment:
    return shared_experiment()


@pytest.fixture(scope="module")
def first(experiment: Experiment) -> Running:
    return experiment.run(timeout=1500)


@pytest.fixture(scope="module")
def artifacts(experiment: Experiment, first: Running) -> dict[str, Path]:
    """Stage -> folder of its artifact."""
    return {path.name.rpartition("-")[0]: path for path in (experiment.outputs / "artifacts").iterdir()}


@pytest.fixture(scope="module")
def record(experiment: Experiment, first: Running) -> Any:
    """The MLflow run."""
    (run,) = experiment.mlflow_runs()
    return run


def test_it_ends_well_and_leaves_nothing_running(first: Running) -> None:
    assert first.process.returncode == 0, first.stdout + first.stderr
    assert first.gone(20) == {}


def test_the_terminal_shows_only_our_lines(first: Running) -> None:
    assert first.stderr == ""
    for stage in STAGES:
        assert stage in first.stdout.splitlines()
    assert "Held-out issues" in first.stdout and "Report: " in first.stdout and "MLflow: run " in first.stdout


def test_every_stage_leaves_a_finished_artifact(artifacts: dict[str, Path]) -> None:
    for stage in (*STAGES, "demonstrations"):
        said = json.loads((artifacts[stage] / "artifact.json").read_text(encoding="utf-8"))
        assert said["stage"] == stage and said["fingerprint"].startswith(artifacts[stage].name.rpartition("-")[2])


def test_the_evaluation_covers_every_held_out_issue(artifacts: dict[str, Path]) -> None:
    held_out = set(json.loads((artifacts["prepare"] / "split.json").read_text(encoding="utf-8"))["held_out"])
    assert len(held_out) == HELD_OUT
    rows = json.loads((artifacts["evaluate"] / "per_issue.json").read_text(encoding="utf-8"))
    assert {row["retriever"] for row in rows} == RETRIEVERS
    for retriever in RETRIEVERS:
        mine = [row["instance_id"] for row in rows if row["retriever"] == retriever]
        assert sorted(mine) == sorted(held_out)
    assert all(0.0 <= row["f05"] <= 1.0 and row["gold"] for row in rows)
    assert all(row["seconds_per_issue"] > 0 for row in rows)
    alone = [(row["retriever"], row["instance_id"]) for row in rows if row["latency_seconds"] is not None]
    assert {retriever for retriever, _ in alone} == RETRIEVERS and len(alone) == LATENCY * len(RETRIEVERS)
    assert len({instance_id for _, instance_id in alone}) == LATENCY


def test_the_loss_mask_is_one_exactly_on_sampled_tokens(artifacts: dict[str, Path]) -> None:
    sampled, scripted = policy_rollouts(artifacts), read_rollouts(artifacts["demonstrations"] / "rollouts")
    for rollout in [*sampled, *scripted]:
        spans = {i for turn in rollout.turns for i in range(turn.start, turn.end)}
        assert rollout.loss_mask == [int(i in spans) for i in range(len(rollout.completion_ids))]
        assert all(a.end <= b.start for a, b in itertools.pairwise(rollout.turns))
        assert rollout.exit_cause != ExitCause.INFRASTRUCTURE
    for rollout in sampled:
        pairs = zip(rollout.logprobs, rollout.loss_mask, strict=True)
        assert all(value < 0.0 if masked else value == 0.0 for value, masked in pairs)
    # The check says something: there is tool text between the turns.
    assert all(len(r.turns) > 1 and 0 in r.loss_mask for r in scripted)


def test_grpo_sampled_what_the_configuration_asks_for(artifacts: dict[str, Path]) -> None:
    rollouts = read_rollouts(artifacts["train"] / "rollouts")
    assert sorted(r.step for r in rollouts) == [step for step in range(STEPS) for _ in range(2 * 2)]
    assert len({r.rollout_id for r in rollouts}) == len(rollouts)
    train = set(json.loads((artifacts["prepare"] / "split.json").read_text(encoding="utf-8"))["train"])
    assert {r.instance_id for r in rollouts} <= train


def test_mlflow_holds_the_run(experiment: Experiment, record: Any) -> None:
    assert record.info.status == "FINISHED"
    params = record.data.params
    assert params["train.grpo.steps"] == str(STEPS) and params["reward.name"] == "v3" and params["seed"] == "0"
    for name in CURVES:
        points = {point.step for point in experiment.mlflow().get_metric_history(record.info.run_id, name)}
        assert points == set(range(1, STEPS + 1)), (name, points)
    assert experiment.mlflow().get_metric_history(record.info.run_id, "warm_start/loss")
    for retriever in RETRIEVERS:
        assert 0.0 <= record.data.metrics[f"eval/{retriever}/f05_mean"] <= 1.0
    tags = record.data.tags
    assert "codegrep.experiment" in tags and tags["data.fingerprint"] and tags["artifact.train"]
    assert tags["demonstrations.teacher"] == "scripted"


def test_mlflow_holds_tables_and_figures(experiment: Experiment, record: Any) -> None:
    files = set(experiment.mlflow_files(record.info.run_id))
    for wanted in (
        "data/split.json",
        "data/dropped.json",
        "evaluation/retrievers.json",
        "evaluation/comparisons.json",
        "evaluation/per_issue.json",
        "figures/retrievers.png",
        "figures/training.png",
        "figures/gain.png",
        "run/config.json",
        "run/environment.json",
    ):
        assert wanted in files, sorted(files)


def test_the_policy_is_logged_as_a_model_and_answers_the_same_when_it_is_loaded_back(
    experiment: Experiment, record: Any, artifacts: dict[str, Path]
) -> None:
    client = experiment.mlflow()
    (model,) = client.search_logged_models([record.info.experiment_id])
    assert model.source_run_id == record.info.run_id and str(model.status) == "READY"
    shutil.rmtree(artifacts["train"] / "adapter")  # what is loaded comes from MLflow, not from here
    loaded = Experiment(
        experiment.folder, experiment.repository, arguments=("evaluate", f"model=runs:/{record.info.run_id}")
    )
    loaded.started = experiment.started
    done = loaded.run("cluster.num_cpus=2", "cluster.object_store_gib=0.1", "sandbox.min_free_gib=0.1")
    assert done.process.returncode == 0, done.stdout + done.stderr
    (run,) = [run for run in experiment.mlflow_runs() if run.info.run_name == "evaluate-seed0"]
    assert run.data.metrics["eval/loaded/issues"] == HELD_OUT
    answers = {}
    for folder in (experiment.outputs / "artifacts").glob("evaluate-*"):
        for row in json.loads((folder / "per_issue.json").read_text(encoding="utf-8")):
            answers.setdefault(row["retriever"], {})[row["instance_id"]] = (row["answer"], row["generated_tokens"])
    assert answers["loaded"] == answers["trained"]


def test_params_name_no_place_that_was_not_given(experiment: Experiment, record: Any) -> None:
    given = {str(experiment.outputs), str(experiment.repository)}
    for key, value in record.data.params.items():
        assert not value.startswith("/") or value in given, (key, value)


def test_the_same_command_again_skips_everything(experiment: Experiment, first: Running, record: Any) -> None:
    again = experiment.run(timeout=400)
    assert again.process.returncode == 0, again.stdout + again.stderr
    assert again.stderr == ""
    for stage in list(STAGES)[:-1]:
        assert f"{stage}: there already" in again.stdout
    assert again.cpu_seconds < 30  # wall time on a free machine is less; a busy one does not stretch this
    (run,) = [run for run in experiment.mlflow_runs() if run.info.run_name == record.info.run_name]
    assert run.info.run_id == record.info.run_id and run.info.status == "FINISHED"
    assert not [key for key in run.data.tags if key.startswith("changed.")]
    assert table(again) == table(first)


def test_evaluate_alone_uses_what_is_there(experiment: Experiment, record: Any) -> None:
    before = len(experiment.mlflow_runs())
    alone = experiment.run("stages=[evaluate]")
    assert alone.process.returncode == 0, alone.stderr
    assert alone.stdout.splitlines()[0].startswith("evaluate: there already")
    assert len(experiment.mlflow_runs()) == before


@pytest.mark.parametrize("missing", ["prepare", "warm_start", "train"])
def test_evaluate_alone_says_what_is_missing(missing: str, experiment: Experiment, artifacts: dict[str, Path]) -> None:
    hidden = experiment.folder / "hidden"
    shutil.move(artifacts[missing], hidden)
    try:
        alone = experiment.run("stages=[evaluate]")
    finally:
        shutil.rmtree(artifacts[missing], ignore_errors=True)
        shutil.move(hidden, artifacts[missing])
    assert alone.process.returncode == 2
    (line,) = alone.stderr.splitlines()
    assert line.startswith(f"codegrep: the artifact of stage {missing} is missing") and f"Add {missing}" in line


def policy_rollouts(artifacts: dict[str, Path]) -> list[Rollout]:
    """Those of GRPO and of every measured model."""
    folders = [artifacts["train"] / "rollouts", *(artifacts[f"measured-{which}"] / "rollouts" for which in MODELS)]
    found = [read_rollouts(folder) for folder in folders]
    assert [len(part) for part in found] == [STEPS * 2 * 2, HELD_OUT, HELD_OUT, HELD_OUT]
    return [rollout for part in found for rollout in part]


def table(running: Running) -> list[str]:
    lines = running.stdout.splitlines()
    return lines[lines.index(next(line for line in lines if line.startswith("Held-out issues"))) :]
