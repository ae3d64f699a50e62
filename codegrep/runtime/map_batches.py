"""Issues through Ray Data: a worker class answers batches of issues, on as many actors as asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from codegrep import errors
from codegrep.errors import CodegrepError, InfrastructureError
from codegrep.issues import Issue
from codegrep.issues.jsonl import issue_from_json


class Worker(Protocol):
    """Answers a batch of issues with JSON-able rows, any number an issue. Built once an actor."""

    def answer(self, issues: Sequence[Issue]) -> list[dict[str, Any]]:
        """Rows for these issues."""
        ...


class _Actor:
    """Ray Data's callable around a Worker: JSON text in, JSON text out, so that nothing is pickled by column type.

    Each row also says how long its block took, divided by the block's issues ("seconds_per_issue").

    What a person has to mend travels as a row. Raised here, it would arrive as one of Ray's own errors, after retries.
    """

    def __init__(self, worker: type, arguments: Mapping[str, Any]) -> None:
        self._worker: Worker | None = None
        self._failed: CodegrepError | None = None
        try:
            self._worker = worker(**arguments)
        except CodegrepError as error:
            self._failed = error

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        if self._worker is None:
            assert self._failed is not None
            return {"row": [_failed_row(self._failed)]}
        issues = [issue_from_json(str(text)) for text in batch["issue"]]
        try:
            started = time.perf_counter()
            rows = self._worker.answer(issues)
        except CodegrepError as error:
            return {"row": [_failed_row(error)]}
        each = (time.perf_counter() - started) / len(issues)
        return {"row": [json.dumps({**row, "seconds_per_issue": each}) for row in rows]}


def map_batches(
    issues: Sequence[Issue],
    worker: type,
    arguments: Mapping[str, Any],
    *,
    batch: int,
    actors: int,
    num_cpus: float,
    num_gpus: float = 0.0,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of the issues, a list a finished block, in the order in which blocks finish.

    Args:
        issues: what to answer; nothing is yielded for an empty sequence.
        worker: a class whose instances are Workers; must be importable where the actors run.
        arguments: keyword arguments of `worker`, picklable.
        batch: issues a block.
        actors: actors that work side by side.
        num_cpus: CPUs that each actor asks the cluster for.
        num_gpus: GPUs that each actor asks the cluster for.

    Raises:
        CodegrepError: what a worker raised, as it was.
        InfrastructureError: actors died more often than Ray starts them again.
    """
    if not issues:
        return
    import ray.data
    from ray.exceptions import RayError, RayTaskError

    texts = [{"issue": json.dumps(asdict(issue))} for issue in issues]
    blocks = max(1, -(-len(texts) // batch))
    dataset = ray.data.from_items(texts, override_num_blocks=blocks).map_batches(
        _Actor,
        fn_constructor_kwargs={"worker": worker, "arguments": dict(arguments)},
        batch_size=None,  # a block is a batch
        concurrency=min(actors, blocks),
        num_cpus=num_cpus,
        num_gpus=num_gpus or None,
    )
    try:
        for rows in dataset.iter_batches(batch_size=None, prefetch_batches=0, batch_format="pandas"):
            yield [_row(text) for text in rows["row"]]
    except RayTaskError:
        raise  # a mistake in the worker's code: its trace is wanted
    except RayError as error:
        if "creation task" in str(error):  # so is one that keeps the worker from being made
            raise
        reason = str(error).strip().partition("\n")[0]
        raise InfrastructureError(
            f"{worker.__name__} was lost: {reason}", "The same command continues where it was"
        ) from error


def _failed_row(error: CodegrepError) -> str:
    return json.dumps({"failed": type(error).__name__, "what": error.what, "fix": error.fix})


def _row(text: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(text)
    if "failed" in row:
        raise getattr(errors, row["failed"], CodegrepError)(row["what"], row["fix"])
    return row
