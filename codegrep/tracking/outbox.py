"""Entries on their way to MLflow: sent at once, or kept in local files until the store can be reached."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.errors import CodegrepError
from codegrep.tracking import parameters, store

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_log = logging.getLogger("codegrep.tracking")
_LONGEST_PAUSE = 300.0  # seconds
# A server that accepts requests and never answers costs a time-out per attempt: at most a twentieth of a run's time.
_PAUSE_PER_ATTEMPT = 20.0
_METRICS_PER_REQUEST = 1000  # MLflow's limits
_PARAMS_PER_REQUEST = 100
# Errors that MLflow repeats however often it is asked. Any other may come from a store that is away for a while.
_FINAL = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"})


@dataclass(frozen=True)
class Entry:
    """One thing to send.

    Attributes:
        kind: metrics, params, tags, artifact, shown_table, policy or status.
        body: content that can be written as JSON.
    """

    kind: str
    body: Mapping[str, Any]


class Outbox:
    """One process's way to the store. Not for several threads at once.

    After a failure nothing is sent for a while and entries are written to a local file, so that a server that is away
    costs a run a few seconds an hour, and one that hangs a twentieth of its time. The first entry after the pause sends
    everything that waits, oldest first. An entry that fails goes to the end of the queue, so that it cannot block the
    others.

    Args:
        uri: tracking URI.
        run_id: MLflow's id of the run.
        folder: where unsent entries are kept; created when the first one is kept.
        retry_after: seconds after a first failure before the store is tried again; doubles up to 5 minutes.

    Attributes:
        unsent: entries of this process that wait in local files.
        rejected: entries and parameters that MLflow refuses for good, or that could not be kept either.
    """

    def __init__(self, uri: str, run_id: str, folder: Path, retry_after: float) -> None:
        self.files = UnsentFiles(folder, run_id)
        self.unsent = 0
        self.rejected = 0
        self._uri = uri
        self._run_id = run_id
        self._lanes = {name: _Lane(retry_after) for name in ("metadata", "artifact")}
        self._client: MlflowClient | None = None
        self._warned: set[str] = set()

    def send(self, entry: Entry, temporary: bool = False, force: bool = False) -> None:
        """Send one entry, or keep it.

        Args:
            entry: what to send.
            temporary: its file is about to be deleted, and is moved to the outbox if the entry has to be kept.
            force: try at once, whatever waits and however recently the store failed.
        """
        lane = self._lane(entry)
        if not force:
            if self.unsent and not lane.closed:
                self.flush()
            if lane.closed:
                self._keep(entry, temporary)
                return
        if not self._try(entry):
            self._keep(entry, temporary)

    def flush(self, force: bool = False) -> None:
        """Send what waits, of this process and of others of the run. `force` tries closed lanes too."""
        if force:
            for lane in self._lanes.values():
                lane.worked()
        claimed: list[Path] = []
        waiting: list[Entry] = []
        failed: list[Entry] = []
        self.unsent = 0
        for path, entries in self.files.take():
            claimed.append(path)
            for entry in entries:
                if self._lane(entry).closed:
                    waiting.append(entry)
                elif not self._try(entry):
                    failed.append(entry)
        for entry in waiting + failed:
            self._keep(entry, temporary=False)
        for path in claimed:
            path.unlink(missing_ok=True)
        if self.files.unreadable:
            self._warn_once("unreadable", "%d unsent lines were cut off by a crash and are lost", self.files.unreadable)

    def _lane(self, entry: Entry) -> _Lane:
        return self._lanes["artifact" if entry.kind in ("artifact", "policy") else "metadata"]

    def _try(self, entry: Entry) -> bool:
        """Return whether the entry is done with: accepted, or refused for good."""
        began = time.monotonic()
        try:
            if self._client is None:
                self._client = store.connect(self._uri)
            self._perform(self._client, entry)
        except Exception as error:  # whatever a client, a driver or a network can raise: tracking never ends a run
            reason = f"{type(error).__name__}: {parameters.masked_text(str(error)).strip()[:160]}"
            if _is_final(error):
                self.rejected += 1
                self._warn_once(f"rejected {entry.kind}", "MLflow refuses %s for good (%s)", entry.kind, reason)
                return True
            self._lane(entry).failed(time.monotonic() - began)
            self._warn_once("away", "MLflow cannot be reached (%s); what is logged is kept and sent later", reason)
            return False
        self._lane(entry).worked()
        return True

    def _keep(self, entry: Entry, temporary: bool) -> None:
        try:
            if temporary:
                path = self.files.adopt(Path(entry.body["path"]))
                entry = Entry(entry.kind, {**entry.body, "path": str(path), "adopted": True})
            self.files.keep(entry)
            self.unsent += 1
        except OSError as error:  # the disk is full or read-only: warn once, and let the run go on
            self.rejected += 1
            self._warn_once("keep", "what MLflow does not take cannot be kept either (%s)", error.strerror)

    def _perform(self, client: MlflowClient, entry: Entry) -> None:
        body = entry.body
        match entry.kind:
            case "metrics":
                self._metrics(client, body["rows"])
            case "params":
                self._params(client, body["params"])
            case "tags":
                self._tags(client, body["tags"])
            case "artifact":
                self._artifact(client, body)
            case "policy":
                self._policy(client, body)
            case "shown_table":
                self._show_table(client, body["path"])
            case "status" if body["end_time"] is None:
                client.update_run(self._run_id, status=body["status"])
            case "status":
                client.set_terminated(self._run_id, status=body["status"], end_time=body["end_time"])
            case other:
                raise ValueError(f"unknown entry {other}")

    def _metrics(self, client: MlflowClient, rows: Sequence[Sequence[Any]]) -> None:
        from mlflow.entities import Metric

        for start in range(0, len(rows), _METRICS_PER_REQUEST):
            batch = rows[start : start + _METRICS_PER_REQUEST]
            client.log_batch(self._run_id, metrics=[Metric(*row) for row in batch])

    def _params(self, client: MlflowClient, params: dict[str, str]) -> None:
        from mlflow.entities import Param

        known = client.get_run(self._run_id).data.params
        new = [Param(key, value) for key, value in params.items() if key not in known]
        for start in range(0, len(new), _PARAMS_PER_REQUEST):
            self._batch_of_params(client, new[start : start + _PARAMS_PER_REQUEST])
        known = client.get_run(self._run_id).data.params  # another process may have been faster
        changed = {
            parameters.allowed_key(f"changed.{key}"): " -> ".join(
                parameters.cut(text, 500) for text in (known[key], value)
            )
            for key, value in params.items()
            if key in known and known[key] != value
        }
        self._tags(client, changed)
        if refused := params.keys() - known.keys():
            self.rejected += len(refused)
            self._warn_once(
                "rejected params", "MLflow refuses parameters for good (%s)", ", ".join(sorted(refused)[:5])
            )

    def _batch_of_params(self, client: MlflowClient, batch: Sequence[Any]) -> None:
        """Log a batch, which MLflow takes whole or not at all; parameters of a refused batch are sent one by one."""
        try:
            client.log_batch(self._run_id, params=batch)
        except Exception as error:  # see _try
            if not _is_final(error):
                raise
            for param in batch if len(batch) > 1 else ():
                self._batch_of_params(client, [param])

    def _tags(self, client: MlflowClient, tags: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        ready = [RunTag(key, value) for key, value in tags.items()]
        for start in range(0, len(ready), _PARAMS_PER_REQUEST):
            client.log_batch(self._run_id, tags=ready[start : start + _PARAMS_PER_REQUEST])

    def _artifact(self, client: MlflowClient, body: Mapping[str, Any]) -> None:
        path, folder = Path(body["path"]), body["folder"] or None
        if path.is_dir():
            client.log_artifacts(self._run_id, str(path), folder)
        else:
            client.log_artifact(self._run_id, str(path), folder)
        if body.get("adopted"):
            self.files.discard(path)

    def _policy(self, client: MlflowClient, body: Mapping[str, Any]) -> None:
        from codegrep.tracking import registry

        model_id = registry.log_policy(
            client, self._run_id, Path(body["path"]), name=body["name"], held_out_f05=body["f05"], data=body["data"]
        )
        if body["register"]:
            registry.register(client, model_id, body["register"], alias=registry.BEST, only_if_better=True)

    def _show_table(self, client: MlflowClient, path: str) -> None:
        """Name a table in the tag that MLflow's comparison view reads. (`client.log_table` appends to an old table.).

        The processes of a run do so one after the other: the tag is read, extended and written.
        """
        with store.one_at_a_time(self.files.folder):
            shown = json.loads(client.get_run(self._run_id).data.tags.get("mlflow.loggedArtifacts", "[]"))
            if not any(item.get("path") == path for item in shown):
                shown.append({"path": path, "type": "table"})
                client.set_tag(self._run_id, "mlflow.loggedArtifacts", json.dumps(shown))

    def _warn_once(self, about: str, message: str, *values: object) -> None:
        if about not in self._warned:
            self._warned.add(about)
            _log.warning(message, *values)


def _is_final(error: Exception) -> bool:
    wrong_by_itself = (CodegrepError, ValueError, TypeError, KeyError, FileNotFoundError, NotADirectoryError)
    return getattr(error, "error_code", None) in _FINAL or isinstance(error, wrong_by_itself)


@dataclass
class _Lane:
    """Back-off of one way to the store: metadata and artifacts fail apart (a database and an object store)."""

    first_pause: float
    pause: float = 0.0
    closed_until: float = 0.0

    @property
    def closed(self) -> bool:
        return time.monotonic() < self.closed_until

    def failed(self, seconds: float) -> None:
        """Close the lane after an attempt that failed after `seconds`."""
        self.pause = min(2 * self.pause, _LONGEST_PAUSE) if self.pause else self.first_pause
        self.closed_until = time.monotonic() + max(self.pause, _PAUSE_PER_ATTEMPT * seconds)

    def worked(self) -> None:
        self.pause = self.closed_until = 0.0


class UnsentFiles:
    """The unsent entries of one run in one folder: a JSONL file per process that kept something.

    A sender takes every file of the run by renaming it, so that two senders never take the same one; a lock on the
    file makes it wait for a line that is being written.
    """

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self._run_id = run_id
        self.unreadable = 0  # lines that `take` could not read

    @property
    def path(self) -> Path:
        """File of this process."""
        return self.folder / f"unsent-{self._run_id}-{os.getpid()}.jsonl"

    def keep(self, entry: Entry) -> None:
        """Append one entry. A temporary file is adopted first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"kind": entry.kind, **entry.body}, default=str) + "\n"
        while True:
            with self.path.open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_at(self.path, file.fileno()):  # else a sender has taken it since it was opened
                    file.write(line)
                    return

    def take(self) -> Iterator[tuple[Path, list[Entry]]]:
        """Claim every file of the run and yield it with its entries, oldest first.

        The caller deletes a file when its entries have been sent or kept again: killed before that, they are sent
        twice, not lost. A line that cannot be read (its process was killed while writing) is counted in `unreadable`.
        """
        files = self.folder.glob(f"unsent-{glob.escape(self._run_id)}-*.jsonl*")
        for path in sorted(files, key=_age):
            claimed = path.with_name(f"{path.name.partition('.jsonl')[0]}.jsonl.{uuid.uuid4().hex[:12]}")
            try:
                path.rename(claimed)
                with claimed.open(encoding="utf-8", errors="replace") as file:
                    fcntl.flock(file, fcntl.LOCK_SH)
                    lines = file.read().splitlines()
            except OSError:  # another sender was faster
                continue
            entries = [_read(line) for line in lines]
            self.unreadable += entries.count(None)
            yield claimed, [entry for entry in entries if entry is not None]

    def adopt(self, path: Path) -> Path:
        """Move a temporary file, under its name, to a place where it stays until it has been sent."""
        target = self.folder / f"unsent-{self._run_id}-files" / uuid.uuid4().hex / path.name
        target.parent.mkdir(parents=True)
        shutil.move(path, target)
        return target

    def discard(self, path: Path) -> None:
        """Delete an adopted file that has been sent, and the folders that are empty then."""
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()
            path.parent.parent.rmdir()


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(line: str) -> Entry | None:
    try:
        body = json.loads(line)
        return Entry(body.pop("kind"), body)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
