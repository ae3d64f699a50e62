"""Sending entries to MLflow, and keeping them when it cannot be reached."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.errors import CodegrepError
from codegrep.tracking import parameters, store
from codegrep.tracking.spool import Entry, Spool

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_log = logging.getLogger("codegrep.tracking")
_LONGEST_PAUSE = 300.0  # seconds
# A server that takes requests and never answers costs a time-out at every attempt: at most a twentieth of a run's time.
_PAUSE_FOR_COST = 20.0
_METRICS_PER_REQUEST = 1000  # MLflow's limits
_PARAMS_PER_REQUEST = 100
# What MLflow will refuse again however often it is asked. Everything else may be a store that is away for a while.
_FINAL = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"})


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
        """An attempt that took so long has failed."""
        self.pause = min(2 * self.pause, _LONGEST_PAUSE) if self.pause else self.first_pause
        self.closed_until = time.monotonic() + max(self.pause, _PAUSE_FOR_COST * seconds)

    def worked(self) -> None:
        self.pause = self.closed_until = 0.0


class Delivery:
    """One process's way to the store. Not for several threads at once.

    After a failure nothing is tried for a while: entries go straight to the spool, so a server that is away costs a run
    a few seconds an hour, and one that hangs a twentieth of its time. The first entry after the pause sends everything
    that waits, oldest first. An entry that fails goes to the end of the line, so that it cannot hold up the others for
    ever.

    Attributes:
        unsent: entries of this process that wait in the spool.
        rejected: entries and parameters that MLflow will never take, or that could not even be kept.
    """

    def __init__(self, uri: str, run_id: str, spool: Spool, retry_after: float) -> None:
        self.spool = spool
        self.unsent = 0
        self.rejected = 0
        self._uri = uri
        self._run_id = run_id
        self._lanes = {name: _Lane(retry_after) for name in ("metadata", "artifact")}
        self._client: MlflowClient | None = None
        self._said: set[str] = set()

    def send(self, entry: Entry, temporary: bool = False, force: bool = False) -> None:
        """Send one entry, or keep it.

        Args:
            entry: what to send.
            temporary: its file is about to be deleted, and must be adopted to be kept.
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
        """Send what waits, of this process and of others that left something. `force` tries closed lanes too."""
        if force:
            for lane in self._lanes.values():
                lane.worked()
        claimed: list[Path] = []
        waiting: list[Entry] = []
        failed: list[Entry] = []
        self.unsent = 0
        for path, entries in self.spool.take():
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
        if self.spool.unreadable:
            self._say_once("unreadable", "%d unsent lines were cut off by a crash and are lost", self.spool.unreadable)

    def _lane(self, entry: Entry) -> _Lane:
        return self._lanes["artifact" if entry.kind in ("artifact", "policy") else "metadata"]

    def _try(self, entry: Entry) -> bool:
        """Whether the entry is done with: taken, or refused for good."""
        began = time.monotonic()
        try:
            if self._client is None:
                self._client = store.connect(self._uri)
            self._perform(self._client, entry)
        except Exception as error:  # whatever a client, a driver or a network can raise: tracking never ends a run
            reason = f"{type(error).__name__}: {parameters.masked_text(str(error)).strip()[:160]}"
            if _is_final(error):
                self.rejected += 1
                self._say_once(f"rejected {entry.kind}", "MLflow refuses %s for good (%s)", entry.kind, reason)
                return True
            self._lane(entry).failed(time.monotonic() - began)
            self._say_once("away", "MLflow cannot be reached (%s); what is logged is kept and sent later", reason)
            return False
        self._lane(entry).worked()
        return True

    def _keep(self, entry: Entry, temporary: bool) -> None:
        try:
            if temporary:
                path = self.spool.adopt(Path(entry.body["path"]))
                entry = Entry(entry.kind, {**entry.body, "path": str(path), "adopted": True})
            self.spool.keep(entry)
            self.unsent += 1
        except OSError as error:  # the disk is full or read-only: say it once, and let the run go on
            self.rejected += 1
            self._say_once("spool", "what MLflow does not take cannot be kept either (%s)", error.strerror)

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
                self._artifact(client, Path(body["path"]), body["folder"] or None)
                if body.get("adopted"):
                    self.spool.discard(Path(body["path"]))
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
            part = rows[start : start + _METRICS_PER_REQUEST]
            client.log_batch(self._run_id, metrics=[Metric(*row) for row in part])

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
            self._say_once("rejected params", "MLflow refuses parameters for good (%s)", ", ".join(sorted(refused)[:5]))

    def _batch_of_params(self, client: MlflowClient, batch: Sequence[Any]) -> None:
        """MLflow takes a batch whole or not at all; what it refuses is written one by one, and `_params` looks why."""
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

    def _artifact(self, client: MlflowClient, path: Path, folder: str | None) -> None:
        if path.is_dir():
            client.log_artifacts(self._run_id, str(path), folder)
        else:
            client.log_artifact(self._run_id, str(path), folder)

    def _policy(self, client: MlflowClient, body: Mapping[str, Any]) -> None:
        from codegrep.tracking import registry

        model_id = registry.log_policy(
            client, self._run_id, Path(body["path"]), name=body["name"], held_out_f05=body["f05"], data=body["data"]
        )
        if body["register"]:
            registry.register(client, model_id, body["register"], alias=registry.BEST, only_if_better=True)

    def _show_table(self, client: MlflowClient, path: str) -> None:
        """Name a table in the tag that MLflow's comparison view reads. (`client.log_table` appends to an old table.)

        The processes that write to the run do so one after the other, or one would overwrite what another has added.
        """
        with store.one_at_a_time(self.spool.folder):
            shown = json.loads(client.get_run(self._run_id).data.tags.get("mlflow.loggedArtifacts", "[]"))
            if not any(item.get("path") == path for item in shown):
                shown.append({"path": path, "type": "table"})
                client.set_tag(self._run_id, "mlflow.loggedArtifacts", json.dumps(shown))

    def _say_once(self, about: str, message: str, *values: object) -> None:
        if about not in self._said:
            self._said.add(about)
            _log.warning(message, *values)


def _is_final(error: Exception) -> bool:
    wrong_by_itself = (CodegrepError, ValueError, TypeError, KeyError, FileNotFoundError, NotADirectoryError)
    return getattr(error, "error_code", None) in _FINAL or isinstance(error, wrong_by_itself)
