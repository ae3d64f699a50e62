"""A run that is stopped or killed, anywhere, goes on with the same command; nothing is left behind, nothing doubled."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from codegrep.rollout.store import read_rollouts
from tests.pipeline.experiments import HELD_OUT, Experiment, Running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # whole runs; seconds on a busy machine
STEPS = 4
PROMPTS, GROUP = 2, 2
LEAN = (f"train.grpo.steps={STEPS}", "evaluate.models=[trained]", "evaluate.retrievers=[bm25]")
# An idle machine needs well under 15 seconds; a busy one is given more.
SECONDS_TO_STOP = 60.0


@pytest.fixture(scope="module")
def warm(shared_experiment: Callable[..., Experiment]) -> Experiment:
    """An experiment whose first two stages are done; tests take names and settings of their own from there."""
    experiment = shared_experiment(*LEAN)
    done = experiment.run("name=warm", "stages=[prepare,warm_start]", timeout=1200)
    assert done.process.returncode == 0, done.stdout + done.stderr
    return experiment


def test_a_killed_training_worker_costs_no_step(warm: Experiment) -> None:
    own = ("name=worker", "train.grpo.kl=0.021")
    running = warm.start(*own)
    running.until(lambda: finished_steps(warm, running) >= 1)
    workers = [pid for pid, title in running.processes().items() if "RayTrainWorker" in title]
    assert workers, running.processes()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    assert running.wait(1200) == 0, running.stdout + running.stderr
    check_whole(warm, "worker", running)


@pytest.mark.ci
def test_a_killed_driver_takes_its_processes_along_and_the_same_command_goes_on(warm: Experiment) -> None:
    own = ("name=driver", "train.grpo.kl=0.022")
    killed = warm.start(*own)
    killed.until(lambda: finished_steps(warm, killed) >= 2)
    killed.process.kill()
    killed.wait(60)
    # Ray's two node agents first look for a minute whether its control store comes back; the others go at once.
    left = killed.gone(15)
    assert all("Agent" in title for title in left.values()), left
    assert killed.gone(300) == {}
    before = {r.rollout_id for r in read_rollouts(train_folder(warm, killed) / "rollouts")}
    again = warm.run(*own, timeout=1200)
    assert again.process.returncode == 0, again.stdout + again.stderr
    check_whole(warm, "driver", again)
    later = [r for r in read_rollouts(train_folder(warm, again) / "rollouts") if r.rollout_id not in before]
    assert min(r.step for r in later) >= 1, "the first checkpoint was not used"


def test_ctrl_c_while_a_repository_is_cloned(experiment: Experiment) -> None:
    """The clone hangs on a server that never answers; git is ended at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/"
        home = experiment.folder / "home"
        home.mkdir()
        (home / ".gitconfig").write_text(f'[url "{address}"]\n\tinsteadOf = https://github.com/\n', encoding="utf-8")
        rows = experiment.folder / "rows.jsonl"
        patch = "diff --git a/a.py b/a.py\\n--- a/a.py\\n+++ b/a.py\\n@@ -1 +1 @@\\n-a\\n+b\\n"
        rows.write_text(
            f'{{"instance_id": "a", "repo": "o/r", "base_commit": "{"1" * 40}", "problem_statement": "It fails", '
            f'"patch": "{patch}"}}\n',
            encoding="utf-8",
        )
        experiment.arguments = (
            "+experiment=v3",
            "model=nano",
            "data=swe_bench",
            f"data.sources.swe_bench.args.path={rows}",
            "data.sources.swe_bench.args.repositories=null",
            "data.sources.swe_bench.args.clone=true",
            "sandbox.min_free_gib=0.1",
        )
        experiment.environment = {"HOME": str(home), "no_proxy": "127.0.0.1", "http_proxy": ""}
        running = experiment.start("stages=[prepare]")
        running.until(lambda: any(" clone " in title for title in running.processes().values()))
        os.kill(running.process.pid, signal.SIGINT)
        check_stopped(experiment, running)


def interrupt(running: Running) -> None:
    """Ctrl-C in a terminal: the whole process group hears it."""
    os.killpg(running.process.pid, signal.SIGINT)


def terminate(running: Running) -> None:
    """What a scheduler does: the command alone is told."""
    os.kill(running.process.pid, signal.SIGTERM)


@pytest.mark.parametrize(("how", "kl"), [(interrupt, 0.023), (terminate, 0.024)])
def test_a_run_that_is_stopped_in_every_stage_ends_whole(
    how: Callable[[Running], None], kl: float, warm: Experiment
) -> None:
    name = f"stopped_{how.__name__}"
    own = (f"name={name}", f"train.grpo.kl={kl}", f"train.warm_start.weight_decay={kl}")
    for reached in (in_warm_start, in_train, in_evaluate):
        running = warm.start(*own)
        running.until(partial(reached, warm, running), seconds=900)
        how(running)
        check_stopped(warm, running, name)
    ended = warm.run(*own, timeout=1200)
    assert ended.process.returncode == 0, ended.stdout + ended.stderr
    check_whole(warm, name, ended)


def in_warm_start(experiment: Experiment, running: Running) -> bool:
    """In the middle of training."""
    return "warm_start" in running.stdout.splitlines() and running.has("RayTrainWorker")


def in_train(experiment: Experiment, running: Running) -> bool:
    return finished_steps(experiment, running) >= 1


def in_evaluate(experiment: Experiment, running: Running) -> bool:
    return "evaluate" in running.stdout.splitlines() and running.has("MapWorker")


def check_stopped(experiment: Experiment, running: Running, name: str = "v3") -> None:
    """It ends soon with the code for an interruption, says how to go on, and leaves neither process nor lock."""
    assert running.wait(SECONDS_TO_STOP) == 130, running.stdout + running.stderr
    assert running.gone(SECONDS_TO_STOP) == {}
    assert running.stderr == ""
    lines = running.stdout.splitlines()
    assert any("the same command continues" in line for line in lines)
    assert "python -m codegrep +experiment=v3" in lines[-1]
    (lock,) = experiment.outputs.glob(f"runs/{name}-seed0-*/lock")
    with lock.open("a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert mlflow_run(experiment, name).info.status == "KILLED"


def check_whole(experiment: Experiment, name: str, last: Running) -> None:
    """One finished MLflow run with every step once or, where it was done again, with one value that counts."""
    assert last.gone(30) == {}
    assert last.stderr == ""
    run = mlflow_run(experiment, name)
    assert run.info.status == "FINISHED"
    for curve in ("reward/total", "policy/kl", "completions/clipped_ratio", "seconds/step"):
        points = experiment.mlflow().get_metric_history(run.info.run_id, curve)
        assert {point.step for point in points} == set(range(1, STEPS + 1)), curve
    train = train_folder(experiment, last)
    rollouts = read_rollouts(train / "rollouts")
    for step in range(STEPS):
        issues = [r.instance_id for r in rollouts if r.step == step]
        assert len(issues) % (PROMPTS * GROUP) == 0 and len(set(issues)) == PROMPTS
    assert (train / "adapter" / "adapter_model.safetensors").is_file()
    assert experiment.mlflow().search_logged_models([run.info.experiment_id], f"source_run_id = '{run.info.run_id}'")
    assert run.data.metrics["eval/trained/f05_mean"] >= 0.0
    assert f"{HELD_OUT} held-out issues" in last.stdout


def mlflow_run(experiment: Experiment, name: str) -> Any:
    """The one run of this name; a second one would be a run that was started anew instead of continued."""
    (run,) = [run for run in experiment.mlflow_runs() if run.info.run_name == f"{name}-seed0"]
    return run


def train_folder(experiment: Experiment, running: Running) -> Path:
    """The artifact that the command trains in: the one whose training was touched last."""
    return max(experiment.outputs.glob("artifacts/train-*"), key=lambda folder: folder.stat().st_mtime)


def finished_steps(experiment: Experiment, running: Running) -> int:
    """Steps of GRPO so far, as the progress bar reads them."""
    if "train" not in running.stdout.splitlines():
        return 0
    file = train_folder(experiment, running) / "step"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return int(text) if text.isdigit() else 0
