"""mlflow/start.sh refuses in one line what cannot work."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mlflow import MlflowClient

SCRIPT = Path(__file__).parents[2] / "mlflow" / "start.sh"


def start(outputs: Path, port: int) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", str(SCRIPT), str(outputs), str(port)], env=environment, capture_output=True, text=True, timeout=120
    )


def test_a_folder_without_runs(tmp_path: Path) -> None:
    done = start(tmp_path, 5999)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "no mlflow.db" in done.stderr


def test_a_port_in_use_is_said_before_an_address_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").create_experiment("codegrep")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = start(tmp_path, port)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].endswith(f"make mlflow PORT={port + 1}")
