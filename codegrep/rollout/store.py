"""Rollouts in a folder of Parquet files that can be read while it is written.

A part is written under a temporary name and renamed, so it is complete or absent. A killed process loses at most
`rows_per_part` - 1 rollouts. Several processes may write into one folder.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from codegrep.errors import DataError
from codegrep.rollout.record import Rollout, from_row, to_row

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
        # float64 keeps the engine's values exactly, so a ratio of 1 stays 1
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
    """Append rollouts to a folder; a context manager.

    Args:
        folder: created if absent.
        rows_per_part: rollouts of one file.
    """

    def __init__(self, folder: Path, rows_per_part: int = 32) -> None:
        self._folder = folder
        self._rows_per_part = rows_per_part
        self._rows: list[Rollout] = []
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, rollout: Rollout) -> None:
        """Add one rollout; a full part is written at once."""
        self._rows.append(rollout)
        if len(self._rows) >= self._rows_per_part:
            self.flush()

    def flush(self) -> None:
        """Write the rollouts taken so far."""
        if self._rows:
            write_rollouts(self._folder, self._rows)
            self._rows = []

    def __enter__(self) -> RolloutWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.flush()  # also after an error: rollouts that ended are valid


def write_rollouts(folder: Path, rollouts: list[Rollout]) -> Path:
    """Write one part; its name sorts by time of writing.

    Raises:
        OSError: the disk is full or the folder cannot be written; no part is left behind.
    """
    table = pa.Table.from_pylist([to_row(rollout) for rollout in rollouts], schema=SCHEMA)
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
    """Read every rollout of a folder in the order of writing; none from an absent or empty folder.

    Raises:
        DataError: a part is damaged, or was written by a version that this one does not know.
    """
    return [rollout for part in sorted(folder.glob("part-*.parquet")) for rollout in read_part(part)]


def read_columns(part: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read columns of one part by their dotted Parquet names; most of a folder's bytes are tokens and text.

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
    """Read every rollout of one part.

    Raises:
        DataError: as `read_rollouts`.
    """
    return [from_row(row) for row in read_columns(part).to_pylist()]
