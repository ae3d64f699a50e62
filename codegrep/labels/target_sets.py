"""Second pass of the stage `label`: global weights, target sets, samples; and their use as gold of training issues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from codegrep.judges.files import RELEVANT
from codegrep.labels.gold import Gold
from codegrep.labels.ray_data import ShardFiles
from codegrep.labels.shards import Shard
from codegrep.labels.targets import SCHEMA, Filters, samples, united
from codegrep.labels.weights import Weighting, merged, weighting

_CHUNK = 2000  # samples of a row group


@dataclass
class Targets:
    """What the second pass found. retention: samples by trajectories that were mined (paper: 0.477)."""

    weighting: Weighting
    histogram: dict[int, int]
    filters: Filters
    samples: int = 0
    issues: int = 0
    by_issue: dict[str, list[list[str]]] = field(default_factory=dict)


def make_targets(
    shards: Sequence[Shard],
    files: ShardFiles,
    gold: Mapping[str, Gold],
    out: Path,
    *,
    min_tokens: int,
    min_weight: float,
    weights_over: str,
    count_empty: bool,
    granularity: str,
) -> Targets:
    """Read all shards' candidates twice: for β and μ, then for the samples, which are written to `out`."""
    kept = [shard for shard in shards if files.read(shard) is not None]  # not those in quarantine
    histogram = merged(_lengths(files.candidates(shard), weights_over, min_tokens) for shard in kept)
    made = Targets(weighting(histogram, with_empty=count_empty), histogram, Filters())

    def by_trajectory() -> Iterator[dict[str, Any]]:
        seen: set[str] = set()
        for shard in kept:
            table = parquet.read_table(files.candidates(shard))
            yield from samples(
                table,
                made.weighting,
                gold,
                min_tokens=min_tokens,
                min_weight=min_weight,
                filters=made.filters,
                leave_out=seen,
            )
            seen.update(table.column("trajectory_id").unique().to_pylist())

    rows: Iterator[dict[str, Any]] = by_trajectory()
    if granularity == "issue":
        rows = iter(united(list(rows), gold, made.filters))
    partial = out.with_name(f".{out.name}.partial")
    with parquet.ParquetWriter(partial, SCHEMA, compression="zstd") as writer:
        chunk: list[dict[str, Any]] = []
        for row in rows:
            made.samples += 1
            made.by_issue.setdefault(row["instance_id"], []).append(row["target_files"])
            chunk.append(row)
            if len(chunk) == _CHUNK:
                writer.write_table(pa.Table.from_pylist(chunk, schema=SCHEMA))
                chunk = []
        writer.write_table(pa.Table.from_pylist(chunk, schema=SCHEMA))
    partial.replace(out)
    made.issues = len(made.by_issue)
    return made


def _lengths(path: Path, weights_over: str, min_tokens: int) -> dict[int, int]:
    """Candidates of a shard by length."""
    table = parquet.read_table(path, columns=["tokens", "verdict"])
    if weights_over == "judged":
        wanted = pc.and_(pc.greater_equal(table["tokens"], min_tokens), pc.equal(table["verdict"], RELEVANT))
        table = table.filter(wanted)
    counts = table["tokens"].value_counts()
    return {int(one["values"]): int(one["counts"]) for one in counts.to_pylist()}
