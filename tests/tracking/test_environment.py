"""What is recorded of the machine, and that the room itself is light."""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from codegrep.tracking import environment, store
from codegrep.tracking.parameters import flatten

ROOT = Path(__file__).parents[2]


def test_the_snapshot_says_what_it_was_and_not_where():
    snapshot = environment.snapshot()
    assert snapshot["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert snapshot["packages"]["mlflow"] and snapshot["machine"]["cores"] >= 1
    text = json.dumps(snapshot)
    assert str(ROOT) not in text and str(Path.home()) not in text and socket.gethostname() not in text
    user = getpass.getuser()
    assert user not in text.split('"')
    assert flatten(snapshot)["python.version"] == snapshot["python"]["version"]


def test_the_commit_is_the_checkouts_own():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    git = environment.snapshot()["git"]
    assert git["commit"] == head.stdout.strip() and isinstance(git["dirty"], bool)
    assert environment.tags(environment.snapshot())["mlflow.source.git.commit"] == git["commit"]


def _fresh(code, cwd=ROOT):
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_mlflow_is_the_library_and_not_the_folder_of_that_name():
    assert (ROOT / "mlflow").is_dir()
    assert not list((ROOT / "mlflow").rglob("*.py"))
    imported = Path(_fresh("import mlflow; print(mlflow.__file__)"))
    assert not imported.is_relative_to(ROOT / "mlflow") and imported.name == "__init__.py"
    assert _fresh("import mlflow; print(mlflow.MlflowClient.__name__)") == "MlflowClient"


def test_mlflow_is_the_library_for_pytest_too(tmp_path):
    (tmp_path / "test_import.py").write_text("def test_it():\n    import mlflow\n    assert mlflow.MlflowClient\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_import.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_importing_the_room_starts_nothing_heavy():
    rooms = "names, parameters, store, outbox, identity, run, history, environment, rows, model_card"
    heavy = _fresh(
        f"import sys; from codegrep.tracking import {rooms}\n"
        "print([n for n in ('mlflow', 'torch', 'ray', 'matplotlib', 'transformers', 'pandas') if n in sys.modules])"
    )
    assert heavy == "[]"


def test_telemetry_is_off_unless_the_operator_decided(tmp_path):
    code = (
        "import os; from codegrep.tracking import store; from pathlib import Path\n"
        "store.connect('http://127.0.0.1:9')\n"
        "from mlflow.environment_variables import MLFLOW_DISABLE_TELEMETRY as off; print(off.get())\n"
        "from mlflow.telemetry.client import get_telemetry_client; print(get_telemetry_client())"
    )
    assert _fresh(code).split() == ["True", "None"]


def test_where_runs_go(tmp_path):
    from codegrep.config import TrackingConfig

    outputs = tmp_path / "my outputs"
    uri, artifacts = store.resolve(TrackingConfig("sqlite", "", "e"), outputs)
    assert uri == f"sqlite:///{outputs}/mlflow.db" and outputs.is_dir()
    assert artifacts == (outputs / "mlflow-artifacts").as_uri()
    assert store.sqlite_path(uri) == outputs / "mlflow.db"
    assert store.resolve(TrackingConfig("server", "http://h:1", "e"), outputs) == ("http://h:1", None)
    assert store.resolve(TrackingConfig("server", "http://h:1", "e", "s3://b"), outputs)[1] == "s3://b"


@pytest.mark.parametrize("name", ["sqlite", "server"])
def test_the_configuration_files_fill_the_dataclass(name):
    import yaml

    from codegrep.config import TrackingConfig

    values = yaml.safe_load((ROOT / "conf" / "tracking" / f"{name}.yaml").read_text())
    assert TrackingConfig(**values).name == name
