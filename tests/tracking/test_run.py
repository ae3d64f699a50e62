"""One MLflow run in a real SQLite store: made once, continued, never in the way of an experiment."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from codegrep.errors import InfrastructureError
from codegrep.tracking import store
from codegrep.tracking.history import history
from codegrep.tracking.run import Tracker, TrackingHandle

NOWHERE = "http://127.0.0.1:9"  # the discard port: refused at once


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    """An SQLite store with its tables made, to be copied: making them takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    store.connect(store.sqlite_uri(folder))
    return folder / "mlflow.db"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A server that is away is found out at once."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@pytest.fixture
def outputs(tmp_path, empty_store):
    folder = tmp_path / "out puts"
    folder.mkdir()
    (folder / "mlflow.db").write_bytes(empty_store.read_bytes())
    return folder


def _start(outputs, uri="", tags=None):
    return Tracker.start(uri or store.sqlite_uri(outputs), "codegrep", "v3", tags or {}, outputs / "run_id")


def _run(tracker):
    return store.connect(tracker.handle.uri).get_run(tracker.run_id)


def _runs(outputs):
    client = store.connect(store.sqlite_uri(outputs))
    return client.search_runs([e.experiment_id for e in client.search_experiments()])


def _artifacts(tracker) -> Path:
    from mlflow.utils.file_utils import local_file_uri_to_path

    return Path(local_file_uri_to_path(_run(tracker).info.artifact_uri))


def test_a_run_from_start_to_finish(outputs):
    tracker = _start(outputs, tags={"codegrep.seed": "0"})
    assert _run(tracker).info.status == "RUNNING"
    tracker.params({"train": {"kl": 0.02}, "judge": {"api_key": "sk-123"}})
    tracker.metrics({"reward/total": 0.5}, step=1)
    tracker.finish("FINISHED")
    run = _run(tracker)
    assert run.info.status == "FINISHED" and run.info.end_time
    assert run.data.params == {"train.kl": "0.02", "judge.api_key": "***"}
    assert run.data.metrics == {"reward/total": 0.5}
    assert run.data.tags["codegrep.seed"] == "0"
    assert (outputs / "run_id").read_text().strip() == tracker.run_id
    assert _artifacts(tracker).is_relative_to(outputs / "mlflow-artifacts")
    assert tracker.unsent == tracker.rejected == tracker.dropped == 0


def test_a_second_start_continues_the_run(outputs):
    first = _start(outputs)
    first.metrics({"reward/total": 0.1}, step=1)
    first.metrics({"reward/total": 0.2}, step=2)
    first.finish("KILLED")
    second = _start(outputs, tags={"resumed": "yes"})
    assert second.run_id == first.run_id
    assert _run(second).info.status == "RUNNING"
    second.metrics({"reward/total": 0.25}, step=2)  # from the checkpoint of step 1
    second.metrics({"reward/total": 0.3}, step=3)
    second.finish("FINISHED")
    assert [row["reward/total"] for row in history(second.handle)] == [0.1, 0.25, 0.3]
    assert len(_runs(outputs)) == 1


def test_a_process_killed_between_making_the_run_and_noting_its_id_makes_no_second_one(outputs):
    tracker = _start(outputs)
    assert (outputs / "run_id.key").read_text().strip() == _run(tracker).data.tags["codegrep.key"]
    (outputs / "run_id").unlink()
    assert _start(outputs).run_id == tracker.run_id
    assert (outputs / "run_id").read_text().strip() == tracker.run_id
    (outputs / "run_id").unlink()
    (outputs / "run_id.key").write_text("0123456789abcdef\n")  # killed before making it
    assert _start(outputs).run_id != tracker.run_id


@pytest.mark.parametrize("content", ["", "0123456789abcdef0123456789abcdef", "not a run id!", "' or 1=1", "\x00", "é"])
def test_files_that_lead_nowhere_give_a_new_run(outputs, content):
    for name in ("run_id", "run_id.key"):
        (outputs / name).write_text(content)
    tracker = _start(outputs)
    assert _run(tracker).info.status == "RUNNING"
    assert (outputs / "run_id").read_text().strip() == tracker.run_id


def test_a_run_that_goes_to_another_store_and_comes_back(outputs, tmp_path, empty_store):
    here = _start(outputs)
    here.metrics({"a": 1.0}, 1)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mlflow.db").write_bytes(empty_store.read_bytes())
    there = _start(outputs, uri=store.sqlite_uri(other))
    assert there.run_id != here.run_id and _run(there).info.status == "RUNNING"
    assert _start(outputs).run_id == here.run_id
    assert _start(outputs, uri=store.sqlite_uri(other)).run_id == there.run_id
    assert len(_runs(outputs)) == len(_runs(other)) == 1


def test_a_server_that_hides_what_it_does_not_have(outputs, monkeypatch):
    """One with logins says 403 of a run of another store."""
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.tracking import MlflowClient

    def get_run(client, run_id):
        if run_id == "0" * 32:
            raise MlflowException("Permission denied", error_code=PERMISSION_DENIED)
        return real(client, run_id)

    real = MlflowClient.get_run
    monkeypatch.setattr(MlflowClient, "get_run", get_run)
    (outputs / "run_id").write_text("0" * 32)
    tracker = _start(outputs)
    tracker.finish("FINISHED")
    assert tracker.run_id != "0" * 32 and tracker.unsent == tracker.rejected == 0


def test_an_experiment_of_somebody_else_is_one_clear_line(outputs, monkeypatch):
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.tracking import MlflowClient

    def create_run(client, *_, **__):
        raise MlflowException("Permission denied", error_code=PERMISSION_DENIED)

    monkeypatch.setattr(MlflowClient, "create_run", create_run)
    with pytest.raises(InfrastructureError) as caught:
        Tracker.start(store.sqlite_uri(outputs), "theirs", "v3", {}, outputs / "run_id", patience=600)
    assert "'theirs'" in caught.value.fix and "tracking.experiment=" in caught.value.fix


def test_a_login_is_the_runs_user(outputs, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ann")
    run = _run(_start(outputs))
    assert run.data.tags["mlflow.user"] == run.info.user_id == "ann"


def test_a_run_or_experiment_that_was_deleted(outputs):
    client = store.connect(store.sqlite_uri(outputs))
    first = _start(outputs)
    client.delete_run(first.run_id)
    second = _start(outputs)
    assert second.run_id != first.run_id
    client.delete_experiment(_run(second).info.experiment_id)
    third = _start(outputs)
    assert _run(third).info.lifecycle_stage == "active"


def test_parameters_that_changed_become_tags(outputs):
    tracker = _start(outputs)
    many = {f"p{i}": i for i in range(250)}
    tracker.params({"a": 1, "b": {"c": "x"}, "empty": "", **many})
    tracker.params({"a": 2, "b": {"c": "x"}, "empty": "", "new": True})
    data = _run(tracker).data
    assert (data.params["a"], data.params["b.c"], data.params["new"], data.params["p249"]) == ("1", "x", "true", "249")
    assert data.tags["changed.a"] == "1 -> 2"
    assert [tag for tag in data.tags if tag.startswith("changed.")] == ["changed.a"]
    assert tracker.rejected == tracker.unsent == 0


def test_very_long_values_and_strange_keys(outputs):
    tracker = _start(outputs)
    tracker.params({"long": "x" * 20_000, "k" * 400: 1, "ä/../b": 2, "": 3, "a:b": 4})
    tracker.tags({"long": "ä" * 20_000, "HF_TOKEN": "hf_abc", "url": "https://me:pw@host/x", "t:ä": 1})
    data = _run(tracker).data
    assert len(data.params) == 5 and len(data.params["long"]) == 6000
    assert data.tags["HF_TOKEN"] == "***" and data.tags["url"] == "https://***@host/x"
    assert tracker.rejected == tracker.unsent == 0


def test_what_is_no_number_is_dropped_and_counted_and_said_once(outputs, caplog):
    tracker = _start(outputs)
    with caplog.at_level(logging.WARNING, logger="codegrep.tracking"):
        for step in range(3):
            tracker.metrics({"a": float("nan"), "b": 1.0, "c": None, "d": np.float32(2), "e": np.inf}, step)
    tracker.metrics({"two words": 1, "bad:name": 1, "": 1, "text": "x", "many": np.zeros(2), "huge": 10**400}, 3)  # type: ignore[dict-item]
    assert tracker.dropped == 6 + 5
    assert sum("a is left out" in message for message in caplog.messages) == 1
    assert set(_run(tracker).data.metrics) == {"b", "d", "two words"}
    tracker.metrics({}, 4)
    tracker.finish("FINISHED")
    assert _run(tracker).data.tags["tracking.dropped_values"] == "11"


def test_more_metrics_than_mlflow_takes_in_one_request(outputs):
    tracker = _start(outputs)
    tracker.metrics({f"m/{number}": number for number in range(1500)}, 0)
    assert len(_run(tracker).data.metrics) == 1500


def test_artifacts(outputs, tmp_path, monkeypatch):
    tracker = _start(outputs)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "weights.bin").write_bytes(b"w")
    tracker.artifact(tmp_path / "adapter", "adapter")
    tracker.artifact(tmp_path / "adapter" / "weights.bin")
    tracker.text("uri: postgresql://me:pw@host\n\ud800", "run/config.yaml")
    figure = Figure()
    figure.add_subplot().plot([1, 2])
    tracker.figure(figure, "figures/curve.png")
    tracker.table([{"a": 1}], "tables/issues.json")
    tracker.table([{"a": 1, "b": float("nan")}, {"a": "x,y", "c": ["z"]}], "tables/issues.json")
    tracker.table([], "empty.json")
    folder = _artifacts(tracker)
    assert (folder / "adapter" / "weights.bin").read_bytes() == (folder / "weights.bin").read_bytes() == b"w"
    assert "pw" not in (folder / "run" / "config.yaml").read_text()
    assert (folder / "figures" / "curve.png").read_bytes().startswith(b"\x89PNG")
    table = json.loads((folder / "tables" / "issues.json").read_text())
    assert table == {"columns": ["a", "b", "c"], "data": [[1, None, None], ["x,y", None, '["z"]']]}
    assert (folder / "tables" / "issues.csv").read_text().splitlines() == ["a,b,c", "1,,", '"x,y",,"[""z""]"']
    assert tracker.rejected == tracker.unsent == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracker.handle.uri)  # MLflow's own reader knows the table
    client, run = store.connect(tracker.handle.uri), _run(tracker)
    shown = client.load_table(run.info.experiment_id, "tables/issues.json", run_ids=[tracker.run_id])
    assert list(shown["a"]) == [1, "x,y"]


def test_an_artifact_that_is_not_there_is_counted_not_raised(outputs, tmp_path):
    tracker = _start(outputs)
    tracker.artifact(tmp_path / "missing.txt")
    assert (tracker.rejected, tracker.unsent) == (1, 0)


def test_only_mlflows_own_states_end_a_run(outputs):
    with pytest.raises(ValueError, match="FINISHED, FAILED, KILLED"):
        _start(outputs).finish("DONE")


def test_a_handle_is_small_picklable_and_silent_about_passwords(outputs):
    handle = TrackingHandle("http://me:pw@host", "r1")
    assert pickle.loads(pickle.dumps(handle)) == handle
    assert "pw" not in repr(handle)
    handle.open()  # reaches for nothing


def test_a_new_run_without_a_store_is_one_clear_line(tmp_path):
    with pytest.raises(InfrastructureError) as caught:
        Tracker.start(NOWHERE.replace("//", "//me:pw@"), "codegrep", "v3", {}, tmp_path / "run_id")
    assert "tracking=sqlite" in caught.value.fix
    assert "pw" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_known_run_goes_on_without_its_store_and_is_recorded_later(outputs, caplog):
    first = _start(outputs)
    first.finish("KILLED")
    with caplog.at_level(logging.WARNING, logger="codegrep.tracking"):
        away = _start(outputs, uri=NOWHERE)
        away.params({"a": 1})
        for step in range(50):
            away.metrics({"reward/total": float(step)}, step)
        away.text("kept", "notes/kept.txt")
        away.table([{"a": 1}], "tables/kept.json")
        away.finish("FINISHED")
    assert away.run_id == first.run_id and away.unsent > 50 and away.rejected == 0
    assert sum("cannot be reached" in message for message in caplog.messages) <= 2
    assert sum("could not be sent" in message for message in caplog.messages) == 1

    back = _start(outputs)  # the store is there again
    run = _run(back)
    assert [row["reward/total"] for row in history(back.handle)] == [float(step) for step in range(50)]
    assert run.data.params == {"a": "1"}
    assert (_artifacts(back) / "notes" / "kept.txt").read_text() == "kept"
    assert (_artifacts(back) / "tables" / "kept.json").exists()
    assert run.info.status == "RUNNING"
    assert not list(outputs.glob("unsent-*"))


@pytest.mark.slow
def test_the_store_comes_back_in_the_middle(outputs):
    """The database is locked by somebody for longer than MLflow waits, then free again."""
    import sqlite3

    tracker = Tracker(_start(outputs).handle, retry_after=0.0)
    tracker.metrics({"a": 0.0}, 0)
    somebody = sqlite3.connect(outputs / "mlflow.db", isolation_level=None)
    somebody.execute("BEGIN EXCLUSIVE")
    tracker.metrics({"a": 1.0}, 1)
    assert tracker.unsent == 1
    somebody.execute("ROLLBACK")
    tracker.metrics({"a": 2.0}, 2)
    assert tracker.unsent == 0
    assert [row["a"] for row in history(tracker.handle)] == [0.0, 1.0, 2.0]


def test_a_new_run_waits_for_a_store_as_long_as_it_may(outputs, monkeypatch):
    tries = []

    def connect(uri):
        tries.append(uri)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return real(uri)

    real = store.connect
    monkeypatch.setattr("codegrep.tracking.run._BETWEEN_TRIES", 0.01)
    monkeypatch.setattr("codegrep.tracking.store.connect", connect)
    uri = store.sqlite_uri(outputs)
    tracker = Tracker.start(uri, "codegrep", "v3", {}, outputs / "run_id", patience=60)
    assert len(tries) >= 3 and _run(tracker).info.status == "RUNNING"
    tries.clear()
    with pytest.raises(InfrastructureError, match="cannot be opened"):
        Tracker.start(uri, "codegrep", "v3", {}, outputs / "another", patience=0)
    assert len(tries) == 1


def test_a_run_deleted_while_it_is_written_to_ends_nothing(outputs):
    tracker = _start(outputs)
    store.connect(tracker.handle.uri).delete_run(tracker.run_id)
    tracker.metrics({"a": 1.0}, 1)
    tracker.params({"a": 1})
    tracker.finish("FINISHED")
    assert tracker.rejected >= 2 and tracker.unsent == 0


def test_an_unwritable_folder_ends_nothing(outputs, tmp_path):
    (tmp_path / "file").write_text("")
    tracker = TrackingHandle(NOWHERE, "r1", str(tmp_path / "file")).open()
    tracker.metrics({"a": 1.0}, 1)
    tracker.text("x", "x.txt")
    tracker.finish("FAILED")
    assert tracker.rejected >= 3


_WORKER = """
import sys
from codegrep.tracking.run import TrackingHandle
tracker = TrackingHandle(sys.argv[1], sys.argv[2], sys.argv[3]).open()
for step in range(40):
    tracker.metrics({sys.argv[4]: float(step)}, step)
print(tracker.unsent, tracker.rejected)
"""

_DRIVER = """
import sys
from pathlib import Path
from codegrep.tracking import store
from codegrep.tracking.run import Tracker
folder = Path(sys.argv[1])
tracker = Tracker.start(store.sqlite_uri(folder), "codegrep", sys.argv[2], {}, folder / sys.argv[2] / "run_id")
tracker.metrics({"a": 1.0}, 0)
tracker.finish("FINISHED")
print(tracker.unsent, tracker.rejected)
"""


def _together(code, *arguments):
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for words in arguments
    ]
    return [process.communicate(timeout=300) for process in running]


def test_two_workers_write_to_one_run(outputs):
    tracker = _start(outputs)
    handle = tracker.handle
    place = (handle.uri, handle.run_id, handle.unsent_folder)
    printed = _together(_WORKER, (*place, "left"), (*place, "right"))
    assert [out.split() for out, _ in printed] == [["0", "0"], ["0", "0"]], printed
    rows = history(handle)
    assert [row["left"] for row in rows] == [row["right"] for row in rows] == [float(step) for step in range(40)]


@pytest.mark.slow
def test_two_experiments_make_one_new_store_together(tmp_path):
    printed = _together(_DRIVER, (str(tmp_path), "one"), (str(tmp_path), "two"))
    assert [out.split() for out, _ in printed] == [["0", "0"], ["0", "0"]], printed
    assert sorted(run.info.status for run in _runs(tmp_path)) == ["FINISHED", "FINISHED"]
    assert all(error == "" for _, error in printed), printed  # no migration chatter on the terminal


_PARAMS = """
import sys, time
from pathlib import Path
from codegrep.tracking import store
from codegrep.tracking.run import TrackingHandle
uri, run_id, folder, number, gate = sys.argv[1:]
tracker = TrackingHandle(uri, run_id, folder).open()
store.connect(uri).get_run(run_id)
Path(gate, number).touch()
while len(list(Path(gate).iterdir())) < 4:
    time.sleep(0.005)
for turn in range(3):
    same = {f"same{turn}_{i}": i for i in range(60)}
    own = {f"own{turn}_{number}_{i}": i for i in range(20)}
    tracker.params({**same, f"other{turn}": number, **own})
tracker.finish("FINISHED")
print(tracker.unsent, tracker.rejected)
"""


def test_four_processes_log_parameters_to_one_run(outputs, tmp_path):
    """What two of them write at once is there once; a contested value is the first one's, the others are reported."""
    tracker = _start(outputs)
    handle, gate = tracker.handle, tmp_path / "gate"
    gate.mkdir()
    place = (handle.uri, handle.run_id, handle.unsent_folder)
    printed = _together(_PARAMS, *((*place, str(number), str(gate)) for number in range(4)))
    tracker.finish("FINISHED")
    assert [out.split() for out, _ in printed] == [["0", "0"]] * 4, printed
    data = _run(tracker).data
    expected = {f"same{turn}_{i}" for turn in range(3) for i in range(60)} | {f"other{turn}" for turn in range(3)}
    expected |= {f"own{turn}_{number}_{i}" for turn in range(3) for number in range(4) for i in range(20)}
    assert data.params.keys() == expected
    for turn in range(3):
        first, _, other = data.tags[f"changed.other{turn}"].partition(" -> ")
        assert first == data.params[f"other{turn}"] and other in {"0", "1", "2", "3"} - {first}


def test_a_parameter_that_another_process_writes_in_between_costs_only_itself(outputs, monkeypatch):
    """The others of its batch are written, and a value that is refused by itself is counted alone."""
    tracker = _start(outputs)
    client_of = store.connect

    def hesitant(uri):
        client = client_of(uri)
        read, pending = client.get_run, [True]

        def get_run(run_id):
            run = read(run_id)
            if pending:  # another process writes between our look and our batch
                pending.clear()
                client.log_param(run_id, "theirs", "1")
                client.log_param(run_id, "both", "x")
            return run

        client.get_run = get_run
        return client

    monkeypatch.setattr(store, "connect", hesitant)
    other = TrackingHandle(tracker.handle.uri, tracker.run_id, tracker.handle.unsent_folder).open()
    other.params({"a": 1, "theirs": 2, "both": "x", "b": 3})
    data = _run(tracker).data
    assert data.params == {"a": "1", "theirs": "1", "both": "x", "b": "3"}
    assert data.tags["changed.theirs"] == "1 -> 2"
    assert other.rejected == other.unsent == 0


_TABLES = """
import sys
from codegrep.tracking.run import TrackingHandle
tracker = TrackingHandle(*sys.argv[1:4]).open()
for number in range(4):
    tracker.table([{"a": 1}], f"tables/{sys.argv[4]}-{number}.json")
print(tracker.unsent, tracker.rejected)
"""


def test_tables_of_several_processes_are_all_shown(outputs):
    tracker = _start(outputs)
    place = (tracker.handle.uri, tracker.run_id, tracker.handle.unsent_folder)
    printed = _together(_TABLES, *((*place, name) for name in ("one", "two")))
    assert [out.split() for out, _ in printed] == [["0", "0"]] * 2, printed
    shown = {item["path"] for item in json.loads(_run(tracker).data.tags["mlflow.loggedArtifacts"])}
    assert shown == {f"tables/{name}-{i}.json" for name in ("one", "two") for i in range(4)}
