"""Shards: one row group of a Parquet file in the common form. The unit of work, of resuming and of quarantine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

#: Columns that mining needs; the others of a file are never read.
_FLAT = ("trajectory_id", "instance_id", "repo", "resolved")
_NESTED = (
    *("role", "content", "tool_call_id", "tool_calls.id"),
    *("tool_calls.function.name", "tool_calls.function.arguments"),
)
_BATCH_BYTES = 64 * 2**20  # of text at once


@dataclass(frozen=True)
class Shard:
    """One row group.

    Attributes:
        number: place in the order of all shards of a set.
        content: SHA-256 of the row group's bytes.
        rows: trajectories.
        text_bytes: size when read, as the file states it.
    """

    number: int
    path: str
    row_group: int
    content: str
    rows: int
    text_bytes: int

    @property
    def name(self) -> str:
        """Names the shard's files: its place and its content."""
        return f"{self.number:05d}-{self.content[:16]}"

    @property
    def where(self) -> str:
        """For people."""
        return f"{Path(self.path).name} row group {self.row_group}"


def is_common(schema: pa.Schema) -> bool:
    """Whether a Parquet file is in the common form, so that its columns can be mined as they are."""
    fields = {field.name: field.type for field in schema}
    kind = fields.get("trajectory")
    if not {"trajectory_id", "instance_id"} <= fields.keys() or kind is None:
        return False
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    message = {field.name: field.type for field in kind.value_type}
    if not {"role", "content"} <= message.keys() or not _is_text(message["content"]):
        return False
    calls = message.get("tool_calls")
    if calls is None or pa.types.is_null(calls):
        return True
    if not (pa.types.is_list(calls) or pa.types.is_large_list(calls)) or not pa.types.is_struct(calls.value_type):
        return False
    call = {field.name: field.type for field in calls.value_type}
    function = call.get("function")
    if function is None or not pa.types.is_struct(function):
        return False
    return any(field.name == "arguments" and _is_text(field.type) for field in function)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def shards_of(path: Path, first: int) -> list[Shard]:
    """Return the shards of a Parquet file in the common form.

    Args:
        first: number of the first of them.

    Raises:
        OSError, pa.ArrowException: the file, or its end, cannot be read.
    """
    with path.open("rb") as raw, parquet.ParquetFile(path) as file:
        made = []
        for group in range(file.metadata.num_row_groups):
            about = file.metadata.row_group(group)
            columns = [about.column(n) for n in range(about.num_columns)]
            content = hashlib.sha256()
            for column in columns:
                raw.seek(_start(column))
                left = column.total_compressed_size
                while left > 0 and (piece := raw.read(min(left, 2**20))):
                    content.update(piece)
                    left -= len(piece)
            needed = sum(c.total_uncompressed_size for c in columns if _needed(c.path_in_schema))
            made.append(Shard(first + group, str(path), group, content.hexdigest(), about.num_rows, needed))
        return made


def _start(column: Any) -> int:
    offsets = [column.data_page_offset]
    if column.dictionary_page_offset:  # None, or 0 with some writers, where there is none
        offsets.append(column.dictionary_page_offset)
    return int(min(offsets))


def _needed(path: str) -> bool:
    parts = [
        part for part in path.split(".") if part not in ("list", "element", "item", "array", "bag", "array_element")
    ]
    return path in _FLAT or (parts[0] == "trajectory" and ".".join(parts[1:]) in _NESTED)


def needed_columns(file: parquet.ParquetFile) -> list[str]:
    """Leaf columns that mining reads, whatever the writer called the items of lists."""
    paths = [file.schema.column(n).path for n in range(len(file.schema))]
    return [path for path in paths if _needed(path)]


def batches(shard: Shard, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Return the rows of a shard, so many at once that their text stays bounded, on this thread alone.

    Args:
        columns: leaf columns; None takes those that mining needs.

    Raises:
        OSError, pa.ArrowException: the row group cannot be read.
    """
    average = max(1, shard.text_bytes // max(1, shard.rows))
    size = max(1, min(1024, _BATCH_BYTES // average))
    with parquet.ParquetFile(shard.path, pre_buffer=True) as file:
        chosen = list(columns) if columns is not None else needed_columns(file)
        yield from file.iter_batches(batch_size=size, row_groups=[shard.row_group], columns=chosen, use_threads=False)
