"""One MLflow run, written to by explicit tracking URI and run id: no active run, no global state.

Trouble with tracking never ends an experiment: what cannot be sent is kept in a local file and sent later.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.errors import InfrastructureError
from codegrep.tracking import identity, parameters, store
from codegrep.tracking.environment import machine_id
from codegrep.tracking.names import is_allowed
from codegrep.tracking.outbox import Entry, Outbox

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATUSES = ("FINISHED", "FAILED", "KILLED")
_REFUSED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})  # waiting does not mend these
_NOT_YOURS = "This login may not record in experiment '{}': ask for EDIT on it, or set tracking.experiment="
_BETWEEN_TRIES = 5.0  # seconds

_log = logging.getLogger("codegrep.tracking")


@dataclass(frozen=True)
class TrackingHandle:
    """What a worker needs to write to the run; picklable, made on the driver.

    Attributes:
        uri: tracking URI. Left out of the repr, since it may hold a password.
        run_id: MLflow's id of the run.
        unsent_folder: folder for what cannot be sent; "" is the machine's temporary folder (then it is sent only by the
            process that kept it).
        started: epoch seconds at which the driver opened the run.
        machine: `environment.machine_id` of the driver's machine.
        system_metrics_seconds: how often a worker on another machine records its use; 0 never.
    """

    uri: str = field(repr=False)
    run_id: str
    unsent_folder: str = ""
    started: float = 0.0
    machine: str = ""
    system_metrics_seconds: float = 0.0

    def open(self) -> Tracker:
        """Return a tracker for this process. Reaches for the server only when something is logged."""
        return Tracker(self)


class Tracker:
    """Writes one run. Safe to use from several threads; workers in other processes open their own from the handle.

    Args:
        handle: which run, and where.
        retry_after: seconds after a failure before the store is tried again; doubles up to 5 minutes.
    """

    def __init__(self, handle: TrackingHandle, retry_after: float = 5.0) -> None:
        self._handle = handle
        self._lock = threading.RLock()
        folder = (
            Path(handle.unsent_folder)
            if handle.unsent_folder
            else Path(tempfile.gettempdir(), f"codegrep-tracking-{os.getuid()}")
        )
        self._outbox = Outbox(handle.uri, handle.run_id, folder, retry_after)
        self._said: set[str] = set()
        self.dropped = 0  # values that were NaN, infinite or no number

    @classmethod
    def start(
        cls,
        uri: str,
        experiment: str,
        name: str,
        tags: Mapping[str, str],
        run_id_file: Path,
        artifact_location: str | None = None,
        key: str | None = None,
        system_metrics_seconds: float = 0.0,
        patience: float = 0.0,
    ) -> Tracker:
        """Create the run, or continue the one that `run_id_file` names, and mark it RUNNING.

        A run is created once in a store, also when the process is killed between creating it and noting its id: a key
        is noted first, the run carries it as a tag, and the next start looks for it. A run that was recorded in another
        store before begins a record of its own in this one.

        Args:
            uri: tracking URI (`store.resolve`).
            experiment: MLflow experiment, made when it is new.
            name: the run's name in the MLflow UI.
            tags: set on the run, also when it is continued.
            run_id_file: one line, the run id; its key lies beside it. What cannot be sent is kept in its folder.
            artifact_location: of a new experiment; None puts it beside an SQLite file, or leaves it to the server.
            key: a name of the run's own, unique in the experiment, by which it is found again where the file is
                missing; None makes one up, and then only the file leads to the run.
            system_metrics_seconds: for workers on other machines; see `TrackingHandle`.
            patience: seconds that a new run waits for a store that does not answer.

        Raises:
            InfrastructureError: a new run cannot be created since the store cannot be reached. (A known run is
                continued all the same, and what it logs is sent later.)
        """
        run_id_file.parent.mkdir(parents=True, exist_ok=True)
        recorded = identity.recorded(run_id_file)
        began = time.monotonic()
        while True:
            try:
                client = store.connect(uri)
                run_id = recorded if recorded and identity.is_there(client, recorded) else None
                if run_id is None:
                    location = artifact_location or store.artifact_location(uri)
                    experiment_id = identity.experiment(client, experiment, location)
                    run_id = identity.create_once(client, experiment_id, name, run_id_file, key)
                break
            except ImportError:
                raise
            except Exception as error:
                if recorded:
                    run_id = recorded
                    _log.warning(
                        "MLflow cannot be reached (%s); the run goes on and is recorded later", _first_line(error)
                    )
                    break
                left = patience - (time.monotonic() - began)
                refused = getattr(error, "error_code", "")
                if left <= 0 or refused in _REFUSED:
                    raise InfrastructureError(
                        f"MLflow cannot be opened at {parameters.masked_text(uri)} ({_first_line(error)})",
                        _NOT_YOURS.format(experiment)
                        if refused == "PERMISSION_DENIED"
                        else "Start the server, check tracking.uri and the login, or use tracking=sqlite",
                    ) from error
                _log.warning("MLflow does not answer yet; another %.0f s are waited for it", left)
                time.sleep(min(left, _BETWEEN_TRIES))
        folder = str(run_id_file.parent.absolute())
        handle = TrackingHandle(uri, run_id, folder, _first_start(run_id_file), machine_id(), system_metrics_seconds)
        tracker = handle.open()
        tracker._outbox.flush(force=True)
        tracker._send(Entry("status", {"status": "RUNNING", "end_time": None}))
        tracker.tags(tags)
        return tracker

    @property
    def handle(self) -> TrackingHandle:
        """For workers."""
        return self._handle

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        return self._handle.run_id

    @property
    def unsent(self) -> int:
        """Entries of this process that wait in the local file."""
        return self._outbox.unsent

    @property
    def rejected(self) -> int:
        """Entries and parameters that MLflow will never take (said once in the log)."""
        return self._outbox.rejected

    def params(self, settings: Mapping[str, object]) -> None:
        """Log nested settings, flattened ('train.grpo.kl'), secrets masked, cut to MLflow's limits.

        MLflow's parameters cannot be changed. One that differs from the recorded value when a run is continued becomes
        a tag `changed.<key>` with both values; equal ones are fine.
        """
        self._send(Entry("params", {"params": parameters.flatten(settings)}))

    def metrics(self, values: Mapping[str, float | None], step: int) -> None:
        """Log numbers of one step. Logging a step again is fine; the later value is the one that `history` reads.

        None is left out. NaN, infinities, non-numbers and names that MLflow refuses are left out and counted in
        `dropped`.
        """
        now = int(time.time() * 1000)
        rows = []
        for name, value in values.items():
            if value is None:
                continue
            number = _number(value)
            if number is None or not is_allowed(name):
                self.dropped += 1
                self._say_once(f"dropped {name}", f"{name} is left out at step {step}: {value!r} cannot be logged")
            else:
                rows.append([name, number, now, int(step)])
        if rows:
            self._send(Entry("metrics", {"rows": rows}))

    def tags(self, tags: Mapping[str, object]) -> None:
        """Set tags; a value is overwritten. Secrets are masked."""
        ready = {
            parameters.allowed_key(key): parameters.cut(
                parameters.as_text(parameters.masked(value, key)), parameters.MAX_TAG
            )
            for key, value in tags.items()
        }
        self._send(Entry("tags", {"tags": ready}))

    def artifact(self, path: Path, folder: str = "") -> None:
        """Copy a file, or everything in a folder, into the run's artifacts under `folder`."""
        self._send(Entry("artifact", {"path": str(path.absolute()), "folder": folder}))

    def text(self, text: str, artifact: str) -> None:
        """Store a text as the artifact 'folder/name.txt', in place of an earlier one. URLs lose their passwords."""
        self._store(artifact, lambda path: _write(path, parameters.masked_text(text)))

    def figure(self, figure: Figure, artifact: str) -> None:
        """Store a matplotlib figure as 'figures/name.png' (or .svg, .pdf), in place of an earlier one."""
        self._store(artifact, lambda path: figure.savefig(path, dpi=150, bbox_inches="tight"))

    def table(self, rows: Sequence[Mapping[str, object]], artifact: str) -> None:
        """Store rows as 'tables/name.json', which MLflow shows and compares as a table, and beside it as CSV.

        In place of an earlier one; columns are the keys in order of appearance, a missing cell is empty.
        """
        columns = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[_cell(row.get(column)) for column in columns] for row in rows]
        content = json.dumps({"columns": columns, "data": cells})
        self._store(artifact, lambda path: _write(path, content))
        sheet = io.StringIO()
        csv.writer(sheet).writerows([columns, *cells])
        self._store(str(Path(artifact).with_suffix(".csv")), lambda path: _write(path, sheet.getvalue()))
        self._send(Entry("shown_table", {"path": artifact}))

    def policy(self, folder: Path, *, name: str, held_out_f05: float | None, data: str, register: str = "") -> None:
        """Log a policy package as a model of this run; see registry.log_policy. The folder must stay where it is.

        Args:
            register: also make it a version of this registered model, whose alias "best" goes to the highest F0.5.
        """
        body = {"path": str(folder.absolute()), "name": name, "f05": held_out_f05, "data": data, "register": register}
        self._send(Entry("policy", body))

    def finish(self, status: str) -> None:
        """Send what is waiting, of this process and of workers that are gone, and close the run.

        What still cannot be sent stays in the folder of the run id file, and the next `start` sends it.

        Args:
            status: one of STATUSES.

        Raises:
            ValueError: another status.
        """
        if status not in STATUSES:
            raise ValueError(f"status {status!r} is not one of {', '.join(STATUSES)}")
        if self.dropped or self.rejected:
            self.tags({"tracking.dropped_values": self.dropped, "tracking.rejected": self.rejected})
        with self._lock:
            self._outbox.flush(force=True)
            self._outbox.send(Entry("status", {"status": status, "end_time": int(time.time() * 1000)}), force=True)
        if self.unsent:
            _log.warning(
                "%d entries could not be sent to MLflow and wait in %s; the same command sends them",
                self.unsent,
                self._outbox.files.path.name,
            )

    def _send(self, entry: Entry) -> None:
        with self._lock:
            self._outbox.send(entry)

    def _store(self, artifact: str, write: Callable[[Path], object]) -> None:
        """Write a file to a temporary folder and send it; when it cannot be sent it is moved to where it can wait."""
        folder, _, name = artifact.rpartition("/")
        try:
            with tempfile.TemporaryDirectory(prefix="codegrep-") as scratch:
                path = Path(scratch, name)
                write(path)
                entry = Entry("artifact", {"path": str(path), "folder": folder})
                with self._lock:
                    self._outbox.send(entry, temporary=True)
        except Exception as error:  # no space, no permission, a figure that cannot be drawn: never worth a run
            self._outbox.rejected += 1
            self._say_once("artifact", f"{artifact} could not be written ({_first_line(error)})")

    def _say_once(self, about: str, message: str) -> None:
        if about not in self._said:
            self._said.add(about)
            _log.warning("%s", message)


def _first_start(run_id_file: Path) -> float:
    """When the run was first opened; the run's folder keeps it, so that a continued run counts on."""
    path = run_id_file.with_name("started")
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        now = time.time()
        path.write_text(f"{now:.0f}\n", encoding="utf-8")
        return now


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several numbers
        return None
    return number if math.isfinite(number) else None


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="replace")


def _cell(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else parameters.as_text(value)


def _first_line(error: BaseException) -> str:
    lines = parameters.masked_text(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
