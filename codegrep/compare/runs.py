"""What a comparison needs of a run, and reading it from MLflow."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.errors import DataError
from codegrep.tracking.history import History, history
from codegrep.tracking.run import TrackingHandle

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

PER_ISSUE = "evaluation/per_issue.json"
# Metrics with a history over optimiser steps; each costs one request.
CURVES = (
    "reward/total",
    "rollout/f05",
    "policy/kl",
    "rollout/tool_turns",
    "completions/generated",
    "completions/sampled",
    "optim/grad_norm",
    "group/drawn",
    "checkpoint/f05",
    "optim/tokens",
    "policy/logprob_gap",
    "seconds/step",
    "seconds/cpu",
)
# What was held back or went wrong in training: all names of these rooms, and single ones.
EVENT_ROOMS = ("errors/", "guard/", "judge/", "masked/", "rollout/exit_")
EVENTS = ("completions/clipped_ratio", "group/dead_rate", "policy/sequence_masked", "turn_scores/invalid")


@dataclass(frozen=True)
class IssueRow:
    """One retriever on one held-out issue. None where a measure does not apply (BM25 has no turns)."""

    retriever: str
    instance_id: str
    repo: str
    values: Mapping[str, float | None]
    kind: str = ""


@dataclass(frozen=True)
class RunRecord:
    """One finished run, as MLflow has it.

    Attributes:
        run_id, name, status: MLflow's.
        params: the flattened configuration.
        metrics: last value of each metric.
        tags: all of them.
        curves: one dict a training step; empty where the run did not train.
        rows: held-out results of every retriever.
        curves_from: run that trained the adapter, where that was not this one (runs share stages by fingerprint).
        training_tags: tags of the run that the curves are from.
    """

    run_id: str
    name: str
    status: str
    params: Mapping[str, str]
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    curves: History = field(default_factory=list)
    rows: Sequence[IssueRow] = ()
    curves_from: str = ""
    training_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def seed(self) -> str:
        """As configured."""
        return self.params.get("seed", "")


@dataclass(frozen=True)
class LeftOut:
    """A run that takes no part, and why, for people."""

    name: str
    run_id: str
    reason: str


def read_runs(client: MlflowClient, uri: str, found: Sequence[Run]) -> tuple[list[RunRecord], list[LeftOut]]:
    """Return the finished runs with held-out results, and what was left out.

    Raises:
        MlflowException: the store cannot be read.
    """
    records, left_out = [], []
    for run in found:
        name, run_id = str(run.info.run_name), str(run.info.run_id)
        if run.info.status != "FINISHED":
            reason = run.data.tags.get("error", "")
            left_out.append(LeftOut(name, run_id, f"is {run.info.status}" + (f": {reason}" if reason else "")))
            continue
        try:
            rows = issue_rows(_artifact(client, run_id, PER_ISSUE))
        except DataError as error:
            left_out.append(LeftOut(name, run_id, error.what))
            continue
        trained_by = _trained_by(client, run)
        records.append(
            RunRecord(
                run_id=run_id,
                name=name,
                status=str(run.info.status),
                params=dict(run.data.params),
                metrics=dict(run.data.metrics),
                tags=dict(run.data.tags),
                curves=_curves(uri, trained_by or run_id),
                rows=rows,
                curves_from=trained_by,
                training_tags=dict((client.get_run(trained_by) if trained_by else run).data.tags),
            )
        )
    return records, left_out


def issue_rows(table: Any) -> list[IssueRow]:
    """Rows of the table that a run's report logs: {"columns": […], "data": [[…], …]}.

    Raises:
        DataError: it is no such table.
    """
    try:
        columns = [str(column) for column in table["columns"]]
        lines = [dict(zip(columns, cells, strict=True)) for cells in table["data"]]
        return [
            IssueRow(
                retriever=str(line.pop("retriever")),
                instance_id=str(line.pop("instance_id")),
                repo=str(line.pop("repo")),
                kind=str(line.pop("kind", "")),
                values={name: _number(cell) for name, cell in line.items() if cell is None or _is_number(cell)},
            )
            for line in lines
        ]
    except (KeyError, TypeError, ValueError):
        raise DataError(f"its {PER_ISSUE} is not the table that a report logs", "Run the stage report again") from None


def _artifact(client: MlflowClient, run_id: str, path: str) -> Any:
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory(prefix="codegrep-") as scratch:
        try:
            local = client.download_artifacts(run_id, path, scratch)
            return json.loads(Path(local).read_text(encoding="utf-8"))
        except (MlflowException, OSError):
            raise DataError(f"has no {path}: the stage report has not run", "Run the stage report") from None
        except ValueError:
            raise DataError(f"its {path} cannot be read", "Run the stage report again") from None


def _trained_by(client: MlflowClient, run: Run) -> str:
    """Return the run that trained this one's adapter, where another did: equal stages are shared."""
    fingerprint = run.data.tags.get("train.artifact", "")
    if "reward/total" in run.data.metrics or not fingerprint.isalnum():
        return ""
    others = client.search_runs(
        [run.info.experiment_id], f"tags.`artifact.train` = '{fingerprint}'", order_by=["attributes.start_time ASC"]
    )
    return next((str(o.info.run_id) for o in others if "reward/total" in o.data.metrics), "")


def _curves(uri: str, run_id: str) -> History:
    wanted = (*CURVES, *EVENTS)
    past = history(TrackingHandle(uri, run_id), lambda name: name in wanted or name.startswith(EVENT_ROOMS))
    return [row for row in past if "optim/tokens" in row or "checkpoint/f05" in row]


def _is_number(cell: object) -> bool:
    return isinstance(cell, bool | int | float)


def _number(cell: Any) -> float | None:
    return None if cell is None else float(cell)
