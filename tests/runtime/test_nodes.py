"""Runs and sweeps on clusters of several nodes, with token authentication; nodes die in the middle of them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codegrep.rollout.store import read_rollouts
from codegrep.sweeps import job_results
from tests.labels.test_stage import artifact, digests, material
from tests.labels.test_stage import command as label_command
from tests.pipeline.experiments import HELD_OUT, ROOT, SMALL, Experiment, Running, make_repository
from tests.runtime.raylets import Raylets, raylets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
STEPS = 4
PLAIN = tuple(argument for argument in SMALL if not argument.startswith("+experiment"))


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[Experiment]:
    made = Experiment(tmp_path, make_repository(tmp_path / "repositories" / "acme__shop"))
    yield made
    made.clean_up()


def on(cluster: Raylets, experiment: Experiment, *arguments: str) -> None:
    first = [a for a in arguments if a.startswith(("-", "+"))]  # what Hydra wants before the values
    own = [a for a in arguments if a not in first]  # they count, so they come last
    experiment.arguments = (*first, *PLAIN, *own, "cluster=address", f"cluster.address={cluster.address}")
    experiment.environment = dict(cluster.environment)


def test_a_run_spans_nodes_and_survives_their_loss_in_training_and_in_evaluation(
    experiment: Experiment, tmp_path: Path
) -> None:
    with raylets([0, 1, 1, 1], tmp_path) as cluster:
        on(
            cluster,
            experiment,
            *("+experiment=v3", "train.workers=2", f"train.grpo.steps={STEPS}", "evaluate.actors=2"),
            *("evaluate.models=[warm_start,trained]", "evaluate.retrievers=[bm25]", "evaluate.batch=1"),
            f"cluster.storage={tmp_path / 'storage'}",
        )
        running = experiment.start()
        running.until(lambda: steps(experiment) >= 1, seconds=1500)
        hosts = cluster.hosts("RayTrainWorker")
        assert len(hosts) == 2, "two workers on nodes of one CPU are on two nodes"
        cluster.ask(f"kill {hosts[-1]}")
        running.until(lambda: steps(experiment) >= STEPS, seconds=1500)
        cluster.ask("add 1")
        running.until(lambda: bool(cluster.hosts("MapWorker(MapBatches(_Actor")) and "evaluate" in stages(running))
        busy = cluster.hosts("MapWorker(MapBatches(_Actor")
        cluster.ask("add 1")
        cluster.ask(f"kill {busy[-1]}")
        assert running.wait(1800) == 0, running.stdout + running.stderr
    (train,) = experiment.outputs.glob("artifacts/train-*")
    assert {rollout.step for rollout in read_rollouts(train / "rollouts")} == set(range(STEPS))
    assert f"{HELD_OUT} held-out issues" in running.stdout or "F0.5" in running.stdout
    stored = tmp_path / "storage"
    assert list(stored.glob(f"checkpoints/{train.name}/training/checkpoint_*/adapter_model.safetensors"))
    assert (stored / "artifacts" / train.name / "adapter" / "adapter_model.safetensors").is_file()
    (run,) = experiment.mlflow_runs()
    assert run.info.status == "FINISHED"
    points = {p.step for p in experiment.mlflow().get_metric_history(run.info.run_id, "reward/total")}
    assert points == set(range(1, STEPS + 1))


def test_labelling_survives_the_loss_of_a_node(tmp_path: Path) -> None:
    """The same samples, to the byte, as from a run to which nothing happened."""
    path, gold = material(tmp_path, 400, 5)
    label([path], gold, tmp_path / "whole", {}).wait(900)
    with raylets([0, 1, 1, 1], tmp_path) as cluster:
        where = ("cluster=address", f"cluster.address={cluster.address}", "labels.workers=2")
        process = label([path], gold, tmp_path / "lost", cluster.environment, *where)
        shards = tmp_path / "lost" / "artifacts"
        limit = time.monotonic() + 900
        while len(list(shards.glob("label-*/shards/*.json"))) < 5:
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.05)
        cluster.ask(f"kill {cluster.hosts('MapWorker')[-1]}")
        assert not list(shards.glob("label-*/artifact.json")), "it was in the middle"
        assert process.wait(900) == 0, (tmp_path / "lost.log").read_text()
    assert digests(artifact(tmp_path / "lost")) == digests(artifact(tmp_path / "whole"))


def label(
    paths: list[Path], gold: Path, outputs: Path, environment: dict[str, str], *more: str
) -> subprocess.Popen[bytes]:
    with outputs.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            label_command(paths, gold, outputs, *more),
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def test_a_sweep_runs_side_by_side_and_a_lost_node_costs_one_start(experiment: Experiment, tmp_path: Path) -> None:
    with raylets([0, 2, 2], tmp_path) as cluster:
        on(
            cluster,
            experiment,
            *("-m", "+experiment=v1,v3", "evaluate.models=[trained]", "evaluate.retrievers=[bm25]"),
        )
        running = experiment.start()
        running.until(lambda: running.stdout.count(": started") == 2)
        assert "completed" not in running.stdout, "both were started before one of them ended"
        running.until(lambda: bool(cluster.hosts("RayTrainWorker")), seconds=1500)
        cluster.ask("add 2")
        cluster.ask(f"kill {cluster.hosts('JobProcess')[-1]}")
        assert running.wait(2400) == 0, running.stdout + running.stderr
    found = record(experiment)
    assert [o.status for o in found] == [job_results.COMPLETED] * 2
    assert all(o.f05 is not None for o in found)
    assert sum(o.starts for o in found) >= 3, "the lost job was started again"


def test_a_sweep_that_is_killed_goes_on_with_missing_and_failed_jobs_only(experiment: Experiment) -> None:
    """On this machine alone: one job at a time; one job's data is missing."""
    broken = experiment.folder / "gone"
    experiment.arguments = ("-m", "+experiment=v3", "seed=0,1", *PLAIN, "evaluate.models=[trained]")
    paths = f"data.sources.git_history.args.path={experiment.repository},{broken}"
    running = experiment.start(paths, "evaluate.retrievers=[bm25]", "hydra.launcher.name=killed")
    running.until(lambda: "job 0: completed" in running.stdout, seconds=1500)
    running.until(lambda: "started" in running.stdout.partition("job 0: completed")[2])
    running.process.kill()
    running.wait(60)
    assert running.gone(300) == {}, "the jobs of a killed sweep end with it"
    again = experiment.run(paths, "evaluate.retrievers=[bm25]", "hydra.launcher.name=killed", timeout=2400)
    assert again.process.returncode == 2, again.stdout + again.stderr
    found = {" ".join(o.overrides): o for o in record(experiment)}
    assert sorted(o.status for o in found.values()) == ["completed", "completed", "failed", "failed"]
    before = [o for o in found.values() if o.status == "completed" and not o.starts]
    assert len(before) == 1, "what was complete is not started again"
    failed = [o for o in found.values() if o.status == "failed"]
    assert all(o.code == 2 and "gone" in o.reason for o in failed), failed
    assert again.stderr.strip().splitlines()[-1].startswith("codegrep: 2 of 4 jobs did not complete")
    broken.symlink_to(experiment.repository)
    last = experiment.run(paths, "evaluate.retrievers=[bm25]", "hydra.launcher.name=killed", timeout=2400)
    assert last.process.returncode == 0, last.stdout + last.stderr
    assert [o.starts for o in record(experiment) if o.status == "completed"].count(0) == 2
    check_children(experiment)


def check_children(experiment: Experiment) -> None:
    """In MLflow: one parent, and each job once."""
    runs = experiment.mlflow_runs()
    parents = [run for run in runs if run.data.tags.get("codegrep.kind") == "sweep"]
    assert len(parents) == 1 and parents[0].info.status == "FINISHED"
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parents[0].info.run_id]
    assert len(children) == 4 and len(runs) == 5


def record(experiment: Experiment) -> list[job_results.JobResult]:
    (folder,) = [path.parent for path in experiment.outputs.glob("sweeps/*/job_results.json")]
    return job_results.read(folder)


def steps(experiment: Experiment) -> int:
    """Optimiser steps of GRPO so far."""
    for file in experiment.outputs.glob("artifacts/train-*/step"):
        text = file.read_text(encoding="utf-8")
        return int(text) if text.isdigit() else 0
    return 0


def stages(running: Running) -> list[str]:
    return running.stdout.splitlines()


def test_every_experiment_runs_with_the_debug_preset(experiment: Experiment) -> None:
    """`+experiment=glob(*)`: no experiment file may rot."""
    experiment.arguments = ("-m", "+experiment=glob(*)", "scale=debug", "data=git_history", "data.split.by=instance")
    running = experiment.run("cluster.object_store_gib=0.1", "data.split.held_out_share=0.3", timeout=3000)
    found = record(experiment)
    assert running.process.returncode == 0, job_results.reasons(found)
    names = {path.stem for path in (Path(__file__).parents[2] / "conf" / "experiment").glob("*.yaml")}
    assert len(found) == len(names) and all(o.status == job_results.COMPLETED for o in found)


def test_a_search_measures_its_rungs_and_continues(experiment: Experiment) -> None:
    experiment.arguments = ("+experiment=v3", "+sweep=tune_lr", *PLAIN)
    own = (
        "sweep.trials=2",
        "train.checkpoint_selection.every=1",
        "train.checkpoint_selection.issues=2",
        "sweep.grace=1",
    )
    running = experiment.run(*own, timeout=2400)
    assert running.process.returncode == 0, running.stdout + running.stderr
    (file,) = experiment.outputs.glob("sweeps/*/trials.json")
    rows: list[dict[str, Any]] = json.loads(file.read_text())
    assert len(rows) == 2 and all(row["f05"] is not None and not row["error"] for row in rows)
    assert all(1e-6 <= row["train.grpo.learning_rate"] <= 1e-3 for row in rows)
    assert "To report it:" in running.stdout and "python -m codegrep +experiment=v3" in running.stdout
    again = experiment.run(*own, timeout=900)
    assert again.process.returncode == 0, again.stdout + again.stderr
    assert json.loads(file.read_text()) == rows, "a finished search is not searched again"
