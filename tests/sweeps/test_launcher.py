"""The launcher's own rules, without Ray."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from codegrep.compose import CONF
from codegrep.errors import ConfigError
from codegrep.hydra_settings import refuse_ignored_choices, refuse_in_command, refuse_unread
from codegrep.overrides import override
from codegrep.pipeline import run_identity
from codegrep.runtime.artifacts import ArtifactStore
from codegrep.runtime.progress import Progress
from codegrep.runtime.resources import Bundle, Node, Request
from codegrep.sweeps import launcher, sweep
from codegrep.sweeps.sweep import Job, LauncherSettings, Queue
from tests.sweeps.composed import composed

ROOT = Path(__file__).parents[2]


def test_a_launcher_in_a_file_is_refused_with_what_to_type() -> None:
    with pytest.raises(ConfigError, match=r"hydra/launcher=basic.*type hydra/launcher=basic on the command line"):
        refuse_ignored_choices({"hydra/launcher": "ray"}, {"hydra/launcher": "basic"})
    refuse_ignored_choices({"hydra/launcher": "ray"}, {"hydra/launcher": "ray"})


@pytest.mark.timeout(300)
def test_an_experiment_file_with_a_launcher_stops_a_sweep_before_any_job(tmp_path: Path) -> None:
    own = tmp_path / "own" / "experiment"
    own.mkdir(parents=True)
    for name in ("a1", "a2"):
        text = f"# @package _global_\ndefaults:\n  - override /hydra/launcher: basic\nname: {name}\n"
        (own / f"{name}.yaml").write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "codegrep", "--config-dir", str(own.parent), "-m", "+experiment=a1,a2"),
            *(f"outputs={tmp_path / 'outputs'}", "stages=[prepare]"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 2, done.stderr
    assert "type hydra/launcher=basic on the command line" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "outputs" / "runs").exists()


def jobs_of(common: Sequence[str], *jobs: str) -> list[Any]:
    """As the launcher composes the jobs of `python -m codegrep -m COMMON JOBS`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", list(common), RunMode.MULTIRUN)
        context: Any = SimpleNamespace(config_loader=loader)
        task = list(master.hydra.overrides.task)
        return [launcher._compose(master, context, [*task, *job.split()], n) for n, job in enumerate(jobs)]


def own_experiment(folder: Path, text: str) -> str:
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "mine.yaml").write_text(f"# @package _global_\nname: mine\nhydra:\n{text}\n")
    return override("hydra.searchpath", [f"file://{folder}"])


@pytest.mark.parametrize(
    "key",
    [
        *(f"launcher.{field}" for field in LauncherSettings.__dataclass_fields__),
        *("sweeper.max_batch_size", "sweeper.params", "sweep.dir", "sweep.subdir"),
    ],
)
def test_a_setting_of_the_sweep_in_a_file_of_a_job_is_refused(tmp_path: Path, key: str) -> None:
    node, _, field = key.partition(".")
    value = {"params": "{seed: '0,1'}"}.get(field, "7")
    path = own_experiment(tmp_path / "a b", f"  {node}:\n    {field}: {value}")
    with pytest.raises(ConfigError, match=rf"hydra\.{key}.* is set inside a file .*type [+]?hydra\.{key}"):
        jobs_of([path], "+experiment=mine")


def test_a_setting_of_the_sweep_counts_where_hydra_reads_it(tmp_path: Path) -> None:
    path = own_experiment(tmp_path, "  launcher:\n    restarts: 0")
    jobs_of([path, "+experiment=mine"], "seed=0")  # one experiment for all jobs
    jobs_of([path, "hydra.launcher.restarts=0"], "+experiment=mine")


@pytest.mark.parametrize("text", ["  job:\n    chdir: true", "  run:\n    dir: x", "  verbose: true"])
def test_what_the_process_of_a_job_reads_may_be_in_its_file(tmp_path: Path, text: str) -> None:
    jobs_of([own_experiment(tmp_path, text)], "+experiment=mine")


def test_what_is_typed_for_the_jobs_goes_along() -> None:
    typed = ["hydra.searchpath=[file:///x]", "+hydra.job.env_set.A=b", "hydra/job_logging=none"]
    for_the_sweep = ["hydra.launcher.restarts=0", "hydra/launcher=ray", "hydra.sweep.dir=y", "hydra.mode=MULTIRUN"]
    (job,) = jobs_of([*typed, *for_the_sweep, "+experiment=v3"], "seed=1")
    assert job.arguments == (*typed, "+experiment=v3", "seed=1")


def test_settings_of_sweeps_are_refused_where_there_is_none() -> None:
    for typed in (
        "hydra.launcher.at_once=2",
        "hydra/launcher=basic",
        "+hydra.sweeper.params.seed=1",
        "~hydra.sweep.dir",
    ):
        with pytest.raises(ConfigError, match="is read in sweeps"):
            refuse_unread(["hydra.run.dir=x", typed], "Add -m")
    refuse_unread(["hydra.run.dir=x", "hydra.sweep_of=1", "seed=1"], "Add -m")
    with pytest.raises(ConfigError, match=r"hydra\.job\.chdir is read in runs"):
        refuse_in_command(["seed=1", "hydra.searchpath=[]", "hydra.job.chdir=true"])


@pytest.mark.timeout(300)
def test_a_run_says_that_nobody_reads_what_is_set_for_sweeps(tmp_path: Path) -> None:
    words = ["+experiment=v3", f"outputs={tmp_path}", "hydra.launcher.at_once=2"]
    done = subprocess.run(
        [sys.executable, "-m", "codegrep", *words], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 2 and "hydra.launcher.at_once is read in sweeps (-m) only" in done.stderr, done.stderr


def test_the_same_job_twice_is_one() -> None:
    jobs = jobs_of(
        ["+experiment=v3"], "seed=0", "seed=0", "seed=1", "seed=0 stages=[prepare]", "seed=0 sandbox.actors=3"
    )
    assert launcher.repeated(jobs) == {1: 0, 4: 0}
    refused = jobs_of(["+experiment=v3"], "train.grpo.kl=-1", "train.grpo.kl=-1")
    assert launcher.repeated(refused) == {}, "what is refused is said for each"


def test_two_jobs_of_one_run_do_not_run_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other stages of the same run wait; a job of another run would not."""
    from collections import deque

    monkeypatch.setattr(sweep, "living_nodes", lambda ledger: [Node("n", Bundle(cpus=8.0))])
    queue = Queue(tmp_path, tmp_path, LauncherSettings(), Progress())
    monkeypatch.setattr(queue, "_start", lambda job, _: queue._running.update({job.number: SimpleNamespace(job=job)}))
    request = Request((Bundle(cpus=1.0),))
    jobs = deque(Job(number, (), (), run, request) for number, run in enumerate(("a", "b", "a")))
    queue._start_what_fits(jobs)
    assert sorted(queue._running) == [0, 1] and [job.number for job in jobs] == [2]
    del queue._running[0]
    queue._start_what_fits(jobs)
    assert sorted(queue._running) == [1, 2]


def test_completion_holds_for_the_same_stages_while_artifacts_are_there(tmp_path: Path) -> None:
    config = composed("+experiment=v3", f"outputs={tmp_path}", "stages=[prepare,evaluate]")
    folder = tmp_path / "runs" / run_identity.run_name(config)
    assert not run_identity.is_completed(config)
    store = ArtifactStore(tmp_path / "artifacts")
    made = {stage: store.open(stage, {"x": stage}) for stage in config.stages}
    for artifact in made.values():
        artifact.finish({})
    run_identity.mark(folder, config, made)
    assert run_identity.is_completed(config)
    assert run_identity.is_completed(composed("+experiment=v3", f"outputs={tmp_path}", "stages=[prepare]"))
    assert not run_identity.is_completed(composed("+experiment=v3", f"outputs={tmp_path}", "stages=[prepare,train]"))
    assert not run_identity.is_completed(
        composed("+experiment=v3", f"outputs={tmp_path}", "seed=1", "stages=[prepare]")
    )
    (made["evaluate"].folder / "artifact.json").unlink()
    assert not run_identity.is_completed(config)
    made["evaluate"].finish({})
    run_identity.clear(folder)
    assert not run_identity.is_completed(config)


def test_where_and_how_a_run_is_recorded_is_no_part_of_its_name() -> None:
    plain = composed("+experiment=v3")
    inside = composed("+experiment=v3", "tracking.sweep=s-1", "tracking.parent_run=abc", "cluster.address=h:1")
    assert run_identity.run_name(plain) == run_identity.run_name(inside)
