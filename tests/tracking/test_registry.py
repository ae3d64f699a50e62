"""Policies as MLflow models in a real store: logged once, registered, found by alias, fetched, sent later."""

from __future__ import annotations

import shutil

import pytest

from codegrep.errors import ConfigError, ModelError
from codegrep.tracking import registry, store
from codegrep.tracking.policy_package import write_package
from codegrep.tracking.run import Tracker
from tests.tracking.test_policy_package import BASE, adapter

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    store.connect(store.sqlite_uri(folder))
    return folder / "mlflow.db"


@pytest.fixture
def outputs(tmp_path, empty_store):
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    return tmp_path


def start(outputs, name="v3"):
    return Tracker.start(store.sqlite_uri(outputs), "codegrep", name, {}, outputs / "runs" / name / "mlflow_run_id")


def package(outputs, content: bytes):
    made = adapter(outputs / f"adapter-{content.decode()}", content)
    folder = outputs / f"model-{content.decode()}"
    return write_package(folder, BASE, warm_start=None, adapter=made, config={"seed": 0}, card="# The card").folder


def test_a_policy_is_logged_once_with_signature_and_card(outputs):
    tracker = start(outputs)
    folder = package(outputs, b"1")
    for _ in range(2):  # the report is made anew each time
        tracker.policy(folder, name="v3-seed0", held_out_f05=0.5, data="abc")
    assert tracker.rejected == tracker.unsent == 0
    client = store.connect(tracker.handle.uri)
    run = client.get_run(tracker.run_id)
    (logged,) = client.search_logged_models([run.info.experiment_id])
    assert [output.model_id for output in run.outputs.model_outputs] == [logged.model_id]
    assert logged.name == "v3-seed0" and logged.tags["codegrep.held_out_f05"] == "0.500000"
    assert "# The card" in logged.tags["mlflow.note.content"]
    from mlflow.models import Model

    made = Model.load(str(folder))
    assert [column.name for column in made.signature.inputs] == ["problem_statement", "repository", "base_commit"]
    assert made.signature.outputs.input_names() == ["files"] and {"python_function", "codegrep"} == set(made.flavors)


def test_registered_found_and_fetched(outputs):
    tracker = start(outputs)
    uri, client = tracker.handle.uri, store.connect(tracker.handle.uri)
    folder = package(outputs, b"1")
    tracker.policy(folder, name="m", held_out_f05=0.4, data="abc", register="retriever")
    model_id = registry.resolve_model(client, "models:/retriever@best")
    for name in ("models:/retriever/1", f"models:/{model_id}", f"runs:/{tracker.run_id}"):
        assert registry.resolve_model(client, name) == model_id
    fetched = registry.fetch_model(client, uri, model_id, outputs / "fetched")
    assert (fetched / "adapter" / "adapter_model.safetensors").read_bytes() == b"1"
    assert registry.register(client, model_id, "retriever") == "1"  # the same model stays the same version


def test_a_name_that_another_run_makes_in_between(outputs, monkeypatch):
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST

    tracker = start(outputs)
    tracker.policy(package(outputs, b"1"), name="v3-seed0", held_out_f05=0.5, data="abc")
    client = store.connect(tracker.handle.uri)
    (logged,) = client.search_logged_models([client.get_run(tracker.run_id).info.experiment_id])

    def late(name):
        client.create_registered_model(name)
        raise MlflowException("not there yet", error_code=RESOURCE_DOES_NOT_EXIST)

    monkeypatch.setattr(client, "get_registered_model", late)
    assert registry.register(client, logged.model_id, "retriever") == "1"


@pytest.mark.parametrize(
    ("f05", "data", "wins"), [(0.5, "abc", True), (0.3, "abc", False), (0.9, "other", False), (None, "abc", False)]
)
def test_best_moves_only_to_a_better_policy_on_the_same_data(outputs, f05, data, wins):
    first, second = start(outputs, "one"), start(outputs, "two")
    first.policy(package(outputs, b"1"), name="one", held_out_f05=0.4, data="abc", register="retriever")
    second.policy(package(outputs, b"2"), name="two", held_out_f05=f05, data=data, register="retriever")
    client = store.connect(first.handle.uri)
    best = client.get_model_version_by_alias("retriever", "best")
    assert best.run_id == (second.run_id if wins else first.run_id)
    model_id = registry.resolve_model(client, f"runs:/{second.run_id}")
    registry.register(client, model_id, "retriever", alias="best")  # asked for by a person: no questions
    assert client.get_model_version_by_alias("retriever", "best").run_id == second.run_id


@pytest.mark.parametrize(
    "uri", ["models:/nothing@best", "models:/nothing/3", "models:/m-" + "0" * 32, "runs:/" + "0" * 32]
)
def test_a_model_that_is_not_there(outputs, uri):
    with pytest.raises(ModelError, match="there is no model"):
        registry.resolve_model(store.connect(store.sqlite_uri(outputs)), uri)


@pytest.mark.parametrize("uri", ["models:/x", "runs:/x", "file:///etc", "models:/"])
def test_what_is_no_uri_of_a_model(outputs, uri):
    with pytest.raises(ModelError, match="names no model"):
        registry.resolve_model(store.connect(store.sqlite_uri(outputs)), uri)


def test_a_run_without_a_policy(outputs):
    tracker = start(outputs)
    with pytest.raises(ModelError, match="has logged no policy"):
        registry.resolve_model(store.connect(tracker.handle.uri), f"runs:/{tracker.run_id}")


def test_names(outputs):
    with pytest.raises(ConfigError, match="cannot be the name"):
        registry.check_name("a'b")


def test_a_policy_waits_while_the_store_is_away(outputs, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = start(outputs)
    handle = tracker.handle
    away = type(handle)(NOWHERE, handle.run_id, handle.unsent_folder).open()
    away.policy(package(outputs, b"1"), name="m", held_out_f05=0.4, data="abc")
    assert away.unsent == 1 and away.rejected == 0
    again = start(outputs)  # the same command later sends what waits
    client = store.connect(handle.uri)
    assert registry.resolve_model(client, f"runs:/{again.run_id}")


def test_a_broken_package_is_refused_for_good(outputs):
    tracker = start(outputs)
    folder = package(outputs, b"1")
    (folder / "policy.json").unlink()
    tracker.policy(folder, name="m", held_out_f05=None, data="abc")
    assert tracker.rejected == 1 and tracker.unsent == 0
