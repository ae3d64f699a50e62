"""A run against a real MLflow server that is stopped in the middle and started again; the team's server on Postgres."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from codegrep.compare.command import main as compare
from codegrep.config import TrackingConfig
from codegrep.errors import InfrastructureError
from codegrep.tracking import registry, store, sweep
from codegrep.tracking.history import history
from codegrep.tracking.policy_package import write_package
from codegrep.tracking.run import Tracker, TrackingHandle
from tests.compare import made_runs
from tests.tracking import servers
from tests.tracking.servers import Postgres, Server
from tests.tracking.test_policy_package import BASE, adapter

TEAM = servers.ROOT / "mlflow" / "team"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")


def start(uri: str, folder: Path, name: str = "v3") -> Tracker:
    first = Tracker.start(uri, "codegrep", name, {}, folder / name / "mlflow_run_id")
    return Tracker(first.handle, retry_after=0.2)


def goes_on_while_the_server_is_away(server: Server, folder: Path) -> None:
    tracker = start(server.uri, folder)
    for step in range(1, 4):
        tracker.metrics({"reward/total": step / 10}, step)
    server.stop(kill=True)
    began = time.monotonic()
    for step in range(4, 204):  # training goes on
        tracker.metrics({"reward/total": step / 10}, step)
    tracker.text("kept", "notes/one.txt")
    assert time.monotonic() - began < 60
    assert tracker.unsent == 201 and tracker.rejected == 0
    server.start()
    time.sleep(0.5)
    tracker.metrics({"reward/total": 20.4}, 204)
    tracker.finish("FINISHED")
    assert tracker.unsent == tracker.rejected == 0
    assert [row["reward/total"] for row in history(tracker.handle)] == [step / 10 for step in range(1, 205)]
    client = store.connect(server.uri)
    assert client.get_run(tracker.run_id).info.status == "FINISHED"
    assert [item.path for item in client.list_artifacts(tracker.run_id, "notes")] == ["notes/one.txt"]
    assert not list((folder / "v3").glob("unsent-*"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_embedded_server_is_stopped_and_started(tmp_path: Path, impatient: None) -> None:
    store.connect(store.sqlite_uri(tmp_path))
    server = servers.sqlite_server(tmp_path)
    server.start()
    try:
        goes_on_while_the_server_is_away(server, tmp_path)
    finally:
        server.stop()


def test_a_server_that_hangs_is_asked_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    asked: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections, answers nothing

        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    asked.append(deaf.accept()[0])

        threading.Thread(target=listen, daemon=True).start()
        uri = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        tracker = Tracker(TrackingHandle(uri, "0" * 32, str(tmp_path)), retry_after=0.01)
        for step in range(100):
            tracker.metrics({"a": 1.0}, step)
        assert tracker.unsent == 100
        assert len(asked) == 1  # two seconds are lost, so nothing is tried for the next forty


@pytest.fixture(scope="module")
def cluster() -> Iterator[Postgres]:
    if reason := servers.why_no_postgres():
        pytest.skip(reason)
    with servers.postgres() as made:
        yield made


@pytest.fixture(scope="module")
def team(cluster: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = servers.team_server(tmp_path_factory.mktemp("team"), cluster)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a-long-password")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_without_a_login_nothing_is_taken(team: Server, tmp_path: Path, impatient: None) -> None:
    with pytest.raises(InfrastructureError, match="cannot be opened"):
        start(team.uri, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_people_record_in_one_experiment(
    team: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged_in: None, impatient: None
) -> None:
    """One of them comes from an SQLite store, whose run the server does not know."""
    from mlflow.server.auth.client import AuthServiceClient

    admin = AuthServiceClient(team.uri)
    for person in ("ann", "bob"):
        admin.create_user(person, f"{person}s-long-password")
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", person)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", f"{person}s-long-password")
        before = Tracker.start(store.sqlite_uri(tmp_path), "shared", "v3", {}, tmp_path / person / "mlflow_run_id")
        tracker = Tracker.start(team.uri, "shared", "v3", {}, tmp_path / person / "mlflow_run_id")
        tracker.metrics({"a": 1.0}, 1)
        tracker.text("kept", "notes/one.txt")
        tracker.finish("FINISHED")
        assert tracker.unsent == tracker.rejected == 0 and tracker.run_id != before.run_id
        run = store.connect(team.uri).get_run(tracker.run_id)
        assert run.data.tags["mlflow.user"] == person and run.info.status == "FINISHED"
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a-long-password")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_sweep_its_comparison_and_a_policy_on_postgres(
    team: Server, cluster: Postgres, tmp_path: Path, logged_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TrackingConfig("server", team.uri, "codegrep")
    parent = sweep.open_sweep(config, tmp_path, "pg", name="v1,v3 x 2 seeds")
    for design, quality in (("v1", 0.1), ("v3", 0.9)):
        for seed in (0, 1):
            made_runs.write_run(tmp_path, design, seed, quality, "pg", parent.run_id, uri=team.uri).finish("FINISHED")
    made = adapter(tmp_path / "adapter")
    package = write_package(tmp_path / "m", BASE, warm_start=None, adapter=made, config={"seed": 0}, card="# Card")
    parent.policy(package.folder, name="v3", held_out_f05=0.9, data="abc", register="retriever")
    parent.finish("FINISHED")
    assert parent.unsent == parent.rejected == 0
    assert compare(["--outputs", str(tmp_path), "--uri", team.uri, "pg", "--resamples", "200"]) == 0
    assert "MLflow: run" in capsys.readouterr().out
    client = store.connect(team.uri)
    assert "compare/index.html" in [item.path for item in client.list_artifacts(parent.run_id, "compare")]
    model_id = registry.resolve_model(client, "models:/retriever@best")
    fetched = registry.fetch_model(client, team.uri, model_id, tmp_path / "fetched")
    assert (fetched / "adapter" / "adapter_model.safetensors").read_bytes() == b"weights"
    assert int(cluster.sql("SELECT count(*) FROM metrics", "mlflow")) >= 4 * made_runs.STEPS
    assert cluster.sql("SELECT count(*) FROM users WHERE is_admin", "mlflow_auth") == "1"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_team_server_is_stopped_and_started(team: Server, tmp_path: Path, logged_in: None, impatient: None) -> None:
    goes_on_while_the_server_is_away(team, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_backup_is_restored(team: Server, cluster: Postgres, tmp_path: Path, logged_in: None) -> None:
    tracker = start(team.uri, tmp_path, "backed-up")
    tracker.metrics({"a": 1.0}, 1)
    tracker.finish("FINISHED")
    environment = {**os.environ, **team.environment, "PATH": f"{cluster.programs}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([TEAM / "backup.sh", tmp_path / "backup"], env=environment, check=True)
    assert (tmp_path / "backup" / "records.dump").stat().st_mode & 0o077 == 0
    cluster.sql("CREATE DATABASE restored")
    subprocess.run(
        [
            *(cluster.programs / "pg_restore", "--no-owner", f"--dbname={cluster.uri('restored')}"),
            tmp_path / "backup" / "records.dump",
        ],
        check=True,
    )
    assert cluster.sql(f"SELECT status FROM runs WHERE run_uuid = '{tracker.run_id}'", "restored") == "FINISHED"
    kept = cluster.sql(f"SELECT value FROM metrics WHERE run_uuid = '{tracker.run_id}' AND key = 'a'", "restored")
    assert float(kept) == 1.0


def test_a_backup_asks_postgres_with_all_that_the_address_says(tmp_path: Path) -> None:
    """Options behind the question mark too: without sslmode=require a dump would go over the wire in the clear."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pg_dump").write_text(
        '#!/bin/sh\ncat "$PGSERVICEFILE" >>"$SEEN"\nfor a; do touch "${a#--file=}"; done\n'
    )
    (programs / "pg_dump").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "SEEN": str(tmp_path / "seen"),
        "MLFLOW_BACKEND_STORE_URI": "postgresql://me:p%40ss@db.example.org:5433/mlflow?sslmode=require",
        "MLFLOW_AUTH_DATABASE_URI": "postgresql:///mlflow_auth?host=/run/a%20socket",
    }
    subprocess.run([TEAM / "backup.sh", tmp_path / "to"], env=environment, cwd=tmp_path, check=True)
    assert (tmp_path / "seen").read_text().split("[backup]\n")[1:] == [
        "host=db.example.org\nport=5433\nuser=me\npassword=p@ss\nsslmode=require\ndbname=mlflow\n",
        "host=/run/a socket\ndbname=mlflow_auth\n",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MLFLOW_BACKEND_STORE_URI", ""),
        ("MLFLOW_AUTH_DATABASE_URI", ""),
        ("MLFLOW_ARTIFACTS_DESTINATION", ""),
        ("MLFLOW_FLASK_SERVER_SECRET_KEY", "short"),
        ("MLFLOW_AUTH_ADMIN_PASSWORD", "short"),
    ],
)
def test_the_start_script_says_what_is_missing(tmp_path: Path, name: str, value: str) -> None:
    whole = {
        "MLFLOW_BACKEND_STORE_URI": "postgresql://a:b@127.0.0.1:1/m",
        "MLFLOW_AUTH_DATABASE_URI": "postgresql://a:b@127.0.0.1:1/n",
        "MLFLOW_ARTIFACTS_DESTINATION": str(tmp_path),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "0123456789abcdef",
        "MLFLOW_AUTH_ADMIN_PASSWORD": "a-long-password",
    }
    environment = {**os.environ, **whole, name: value}
    done = subprocess.run(["sh", TEAM / "serve.sh"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and name in done.stderr and "Traceback" not in done.stderr


def test_the_compose_file_fits_the_start_script() -> None:
    """What the script asks for is set, every secret comes from outside, and one loopback port is open."""
    compose = yaml.safe_load((TEAM / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    environment = services["mlflow"]["environment"]
    script = (TEAM / "serve.sh").read_text(encoding="utf-8")
    for name in (
        "MLFLOW_BACKEND_STORE_URI",
        "MLFLOW_AUTH_DATABASE_URI",
        "MLFLOW_ARTIFACTS_DESTINATION",
        "MLFLOW_AUTH_ADMIN_PASSWORD",
        "MLFLOW_FLASK_SERVER_SECRET_KEY",
    ):
        assert name in environment and name in script
    given = {line.partition("=")[0] for line in (TEAM / "env.example").read_text().splitlines() if line[:1].isalpha()}
    text = json.dumps(compose)
    for secret in (
        "POSTGRES_PASSWORD",
        "S3_SECRET_KEY",
        "MLFLOW_AUTH_ADMIN_PASSWORD",
        "MLFLOW_FLASK_SERVER_SECRET_KEY",
    ):
        assert secret in given and f"${{{secret}:?" in text
    assert [p for service in services.values() for p in service.get("ports", [])] == ["127.0.0.1:5000:5000"]
    assert services["database"]["volumes"] and services["objects"]["volumes"]


def test_the_start_script_uses_only_options_that_the_installed_server_has() -> None:
    from mlflow.cli import server

    options = {name for parameter in server.params for name in parameter.opts}
    script = (TEAM / "serve.sh").read_text(encoding="utf-8")
    used = {word for line in script.splitlines() for word in line.split() if word.startswith("--") and len(word) > 2}
    assert used - {"--"} <= options
    by_environment = {str(parameter.envvar) for parameter in server.params if parameter.envvar}
    assert {"MLFLOW_BACKEND_STORE_URI", "MLFLOW_ARTIFACTS_DESTINATION"} <= by_environment
