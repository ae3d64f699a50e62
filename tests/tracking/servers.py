"""Real MLflow servers for tests, on the loopback interface: embedded SQLite, and Postgres with logins."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTING = 500.0  # seconds; ten on a free machine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A start script of mlflow/, which can be stopped and started again on the same port."""

    command: list[str]
    port: int
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env={**os.environ, **self.environment}, stdout=log, stderr=log, start_new_session=True
            )
        limit = time.monotonic() + STARTING
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > limit:
                self.stop(kill=True)
                raise AssertionError(self.log.read_text(errors="replace"))
            time.sleep(0.2)

    def stop(self, kill: bool = False) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        os.killpg(self.process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self.process.wait(200)  # it closes its connections first; seconds on a free machine
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)
            raise
        limit = time.monotonic() + 30
        while self._answers() and time.monotonic() < limit:
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return True  # it wants a login: it is there
        except OSError:
            return False


@dataclass(frozen=True)
class Postgres:
    """A cluster of its own, on a port of its own."""

    port: int
    programs: Path

    def uri(self, database: str) -> str:
        return f"postgresql://tester:pass%40word@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        done = subprocess.run(
            [
                *(self.programs / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "tester", "-d", database),
                *("-qtAX", "-v", "ON_ERROR_STOP=1", "-c", statement),
            ],
            env={**os.environ, "PGPASSWORD": "pass@word"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()


def postgres_programs() -> Path | None:
    """Folder with initdb and pg_ctl: of a Debian package, or on the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name) + [
        Path(found).parent for found in [shutil.which("pg_ctl")] if found
    ]
    whole = [f for f in folders if all((f / name).exists() for name in ("initdb", "pg_ctl", "psql", "pg_dump"))]
    return whole[-1] if whole else None


def why_no_postgres() -> str:
    """What is missing for a server on Postgres, or ''."""
    if postgres_programs() is None:
        return "PostgreSQL's server programs are not installed (Debian: apt-get install postgresql)"
    missing = [name for name in ("psycopg", "flask_wtf") if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} missing: pip install -c constraints.txt -e '.[team-server]'" if missing else ""


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A new cluster with a password for its one user, gone afterwards. Postgres refuses to run as root."""
    programs = postgres_programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="codegrep-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    made = Postgres(free_port(), programs)
    password = folder / "password"
    password.write_text("pass@word")
    password.chmod(0o644)
    data, options = folder / "data", f"-c listen_addresses=127.0.0.1 -p {made.port} -k {folder} -c fsync=off"

    def run(*command: str | Path) -> None:
        done = subprocess.run([*as_user, *map(str, command)], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    run(programs / "initdb", "-D", data, "-U", "tester", "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8")
    run(programs / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-t", "120", "-o", options, "start")
    try:
        yield made
    finally:
        run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def team_server(folder: Path, cluster: Postgres) -> Server:
    """mlflow/team/serve.sh on two databases of the cluster, files in a folder."""
    for database in ("mlflow", "mlflow_auth"):
        cluster.sql(f"CREATE DATABASE {database}")
    port = free_port()
    environment = {
        "PYTHON": sys.executable,
        "TMPDIR": str(folder),
        "MLFLOW_BACKEND_STORE_URI": cluster.uri("mlflow"),
        "MLFLOW_AUTH_DATABASE_URI": cluster.uri("mlflow_auth"),
        "MLFLOW_ARTIFACTS_DESTINATION": str(folder / "files"),
        "MLFLOW_AUTH_ADMIN_PASSWORD": "a-long-password",
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "0123456789abcdef0123456789abcdef",
        "MLFLOW_PORT": str(port),
        "MLFLOW_WORKERS": "1",
    }
    return Server([str(ROOT / "mlflow" / "team" / "serve.sh")], port, folder / "server.log", environment)


def sqlite_server(outputs: Path) -> Server:
    """mlflow/start.sh on an outputs folder."""
    port = free_port()
    # The script looks for the project's own .venv first; the tests run where they run.
    folder = Path(sys.executable).parent
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHON": sys.executable}
    command = ["sh", str(ROOT / "mlflow" / "start.sh"), str(outputs), str(port)]
    return Server(command, port, outputs / "server.log", environment)
