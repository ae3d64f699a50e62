"""A parent run a sweep and a child a job, in a real SQLite store, through restarts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from codegrep.config import TrackingConfig
from codegrep.errors import ConfigError
from codegrep.tracking import store, sweep
from codegrep.tracking.run import Tracker


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    store.connect(store.sqlite_uri(folder))
    return folder / "mlflow.db"


@pytest.fixture
def outputs(tmp_path, empty_store):
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    return tmp_path


def tracking(**more: str) -> TrackingConfig:
    return TrackingConfig(name="sqlite", uri="", experiment="codegrep", **more)


def client(outputs: Path):
    return store.connect(store.sqlite_uri(outputs))


def job(outputs: Path, name: str, sweep_id: str, parent: str) -> Tracker:
    """What pipeline.run does for a job whose configuration has `job_settings`."""
    keys = {key.removeprefix("tracking."): value for key, value in sweep.job_settings(sweep_id, parent).items()}
    config = tracking(**keys)
    uri, _ = store.resolve(config, outputs)
    file = outputs / "runs" / name / "mlflow_run_id"
    return Tracker.start(uri, config.experiment, name, sweep.child_tags(config), file)


def test_parent_and_children(outputs):
    parent = sweep.open_sweep(tracking(), outputs, "s1", name="v1,v2", tags={"overrides": "seed=0,1"})
    jobs = [job(outputs, name, "s1", parent.run_id) for name in ("v1-seed0", "v2-seed0")]
    for made in jobs:
        made.finish("FINISHED")
    parent.finish("FINISHED")
    found = sweep.children_of(client(outputs), "s1")
    assert [run.info.run_id for run in found] == [made.run_id for made in jobs]
    assert {run.data.tags["mlflow.parentRunId"] for run in found} == {parent.run_id}
    (above,) = [sweep.parent_of(client(outputs), "s1")]
    assert above.info.run_id == parent.run_id and above.info.run_name == "v1,v2"
    assert above.info.status == "FINISHED" and above.data.tags["overrides"] == "seed=0,1"
    assert sweep.parent_of(client(outputs), "s2") is None and sweep.children_of(client(outputs), "s2") == []


def test_a_sweep_started_again_continues_parent_and_children(outputs):
    parent = sweep.open_sweep(tracking(), outputs, "s1")
    child = job(outputs, "v1-seed0", "s1", parent.run_id)
    del child  # killed: nothing was finished
    again = sweep.open_sweep(tracking(), outputs, "s1")
    assert again.run_id == parent.run_id
    assert (
        job(outputs, "v1-seed0", "s1", again.run_id).run_id == sweep.children_of(client(outputs), "s1")[0].info.run_id
    )
    shutil.rmtree(outputs / "sweeps")  # continued from another machine: only the store knows
    assert sweep.open_sweep(tracking(), outputs, "s1").run_id == parent.run_id
    assert len(sweep.children_of(client(outputs), "s1")) == 1


def test_a_run_that_two_sweeps_share_belongs_to_both(outputs):
    for sweep_id in ("s1", "s2"):
        parent = sweep.open_sweep(tracking(), outputs, sweep_id)
        shared = job(outputs, "v1-seed0", sweep_id, parent.run_id)
    for sweep_id in ("s1", "s2"):
        assert [run.info.run_id for run in sweep.children_of(client(outputs), sweep_id)] == [shared.run_id]
    assert sweep.children_of(client(outputs), "s") == []


def test_outside_a_sweep_a_run_has_no_parent():
    assert sweep.child_tags(tracking()) == {"codegrep.kind": "run"}


@pytest.mark.parametrize("wrong", ["", "a b", "a'b", "a.b", "../x", "x" * 65, "-x", "ä"])
def test_an_id_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigError, match="cannot be the id of a sweep"):
        sweep.check_sweep_id(wrong)
