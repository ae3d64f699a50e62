"""Rollouts in a folder of Parquet files, written while they end and readable at any time.

A part is complete or absent: it is written under a temporary name and renamed. What a killed process loses is what it
had not written yet, at most `rows_per_part` - 1 rollouts. Several processes may write into one folder.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from codegrep.errors import DataError
from codegrep.rollout.record import CallRecord, Rollout, Turn

SCHEMA_VERSION = "2"
_VERSION_KEY = b"codegrep.rollout.version"

_CALL = pa.struct(
    [
        ("number", pa.int32()),
        ("name", pa.string()),
        ("arguments", pa.string()),
        ("status", pa.string()),
        ("text", pa.string()),
        ("paths", pa.list_(pa.string())),
        ("truncated", pa.bool_()),
        ("seconds", pa.float64()),
        ("lines", pa.list_(pa.int32())),
    ]
)
_TURN = pa.struct(
    [
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("text", pa.string()),
        ("calls", pa.list_(_CALL)),
        ("observation", pa.string()),
        ("weight", pa.float64()),
        ("seconds_generation", pa.float64()),
        ("seconds_tools", pa.float64()),
        ("weights_version", pa.int64()),
    ]
)
SCHEMA = pa.schema(
    [
        ("rollout_id", pa.string()),
        ("instance_id", pa.string()),
        ("repo", pa.string()),
        ("base_commit", pa.string()),
        ("source", pa.string()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("completion_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
        # float64: what is read back is bit for bit what the engine gave, so a ratio of 1 stays 1
        ("logprobs", pa.list_(pa.float64())),
        ("turns", pa.list_(_TURN)),
        ("answer", pa.list_(pa.string())),
        ("answered", pa.bool_()),
        ("gold_files", pa.list_(pa.string())),
        ("exit_cause", pa.string()),
        ("error", pa.string()),
        ("step", pa.int32()),
        ("seed", pa.int64()),
    ],
    metadata={_VERSION_KEY: SCHEMA_VERSION.encode()},
)


class RolloutWriter:
    """Appends rollouts to a folder. Use as a context manager, or call `close`.

    Args:
        folder: made where it is absent.
        rows_per_part: rollouts of one file.
    """

    def __init__(self, folder: Path, rows_per_part: int = 32) -> None:
        self._folder = folder
        self._rows_per_part = rows_per_part
        self._rows: list[Rollout] = []
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, rollout: Rollout) -> None:
        """Take one rollout; a full part is written at once."""
        self._rows.append(rollout)
        if len(self._rows) >= self._rows_per_part:
            self.flush()

    def flush(self) -> None:
        """Write what has been taken so far."""
        if self._rows:
            write_rollouts(self._folder, self._rows)
            self._rows = []

    def close(self) -> None:
        """Write the rest. Safe to call twice."""
        self.flush()

    def __enter__(self) -> RolloutWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Also after an error: the rollouts that ended are true.
        self.close()


def write_rollouts(folder: Path, rollouts: list[Rollout]) -> Path:
    """Write one part; its name sorts by time of writing.

    Raises:
        OSError: the disk is full or the folder cannot be written; no part is left then.
    """
    table = pa.Table.from_pylist([_writable(asdict(rollout)) for rollout in rollouts], schema=SCHEMA)
    part = folder / f"part-{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.parquet"
    temporary = part.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(part)
    finally:
        temporary.unlink(missing_ok=True)
    return part


def read_rollouts(folder: Path) -> list[Rollout]:
    """Every rollout of a folder, in the order of writing; an absent or empty folder gives none.

    Raises:
        DataError: a part is damaged, or was written by a version that this one does not know.
    """
    return [rollout for part in sorted(folder.glob("part-*.parquet")) for rollout in read_part(part)]


def read_columns(part: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Some columns of one part, by their dotted Parquet names (a folder of 100,000 rollouts is mostly tokens and text).

    Raises:
        DataError: as `read_rollouts`.
    """
    try:
        with pq.ParquetFile(part) as file:
            schema = file.schema_arrow
            version = (schema.metadata or {}).get(_VERSION_KEY, b"none").decode("utf-8", "replace")
            if version == SCHEMA_VERSION and schema.names == SCHEMA.names:
                return file.read(columns=None if columns is None else list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as failure:
        raise DataError(
            f"{part} cannot be read: {str(failure)[:200]}", "delete it; its rollouts are made again"
        ) from failure
    raise DataError(
        f"{part} holds rollouts of version {version}, this program reads version {SCHEMA_VERSION}",
        "read it with the version that wrote it, or delete it",
    )


def read_part(part: Path) -> list[Rollout]:
    """Every rollout of one part.

    Raises:
        DataError: as `read_rollouts`.
    """
    return [rollout_from_row(row) for row in read_columns(part).to_pylist()]


def rollout_from_row(row: Mapping[str, Any]) -> Rollout:
    """The rollout whose fields a row holds: the inverse of `dataclasses.asdict`."""
    turns = [Turn(**{**turn, "calls": [CallRecord(**call) for call in turn["calls"]]}) for turn in row["turns"]]
    return Rollout(**{**row, "turns": turns})


def _writable(value: Any) -> Any:
    """File names that are no UTF-8 come as lone surrogates, which Parquet cannot hold: they become question marks."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {key: _writable(item) for key, item in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return [_writable(item) for item in value]
    return value
