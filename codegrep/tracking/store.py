"""Where runs are kept: an SQLite file under the outputs, or a server. The only module that starts MLflow's client."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from codegrep.config import TrackingConfig

_SQLITE = "sqlite:///"
# Read by MLflow when it is imported. An operator's own settings win.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    # MLflow's default waits for minutes on a server that is away; the tracker buffers and tries again later instead.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


def sqlite_uri(outputs: Path) -> str:
    """Tracking URI of the SQLite file under `outputs`, which is created. Artifacts go to `outputs`/mlflow-artifacts."""
    folder = outputs.expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return f"{_SQLITE}{folder.as_posix()}/mlflow.db"


def artifact_location(uri: str) -> str | None:
    """Where the artifacts of a new experiment go: beside an SQLite file; None leaves it to the server."""
    database = sqlite_path(uri)
    return (database.parent / "mlflow-artifacts").as_uri() if database else None


def resolve(config: TrackingConfig, outputs: Path) -> tuple[str, str | None]:
    """Tracking URI and artifact location that a configuration means."""
    uri = config.uri or sqlite_uri(outputs)
    return uri, config.artifact_location or artifact_location(uri)


def sqlite_path(uri: str) -> Path | None:
    """Return the file of an SQLite URI, absolute; None for any other store."""
    if not uri.startswith(_SQLITE):
        return None
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]).absolute()


def connect(uri: str) -> MlflowClient:
    """Return a client of the store at `uri`, quiet and without telemetry. A new SQLite store is created first, once.

    Raises:
        Exception: whatever MLflow raises when the store cannot be opened.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # traces; the tracker says what is not sent
    logging.getLogger("urllib3.connectionpool").addFilter(_no_word_of_retries)
    database = sqlite_path(uri)
    # MLflow does not guard against two processes that create the tables of one new file together.
    with one_at_a_time(database.parent) if database else contextlib.nullcontext():
        return MlflowClient(tracking_uri=uri)


def _no_word_of_retries(record: logging.LogRecord) -> bool:
    """Drop urllib3's line for each retry of a request to MLflow: the tracker says once that a server is away."""
    return "/mlflow/" not in record.getMessage()


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Make other processes of this machine wait that come here with the same folder, which is made when it is missing.

    The lock is on the folder itself, so no file is left behind, and it ends with the process.
    """
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
