"""Shards through Ray Data: mined, judged and written where the workers run; the driver sees one line a shard.

A shard is done when its record is there; records are written last. So a killed run loses the shards that were in work,
and the next one has the same files, to the byte.
"""

from __future__ import annotations

import errno
import importlib
import inspect
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from codegrep.errors import ConfigError, DiskError, InfrastructureError
from codegrep.judges.files import Judge, Relevance
from codegrep.labels.shard_work import MiningSettings, ShardRecord, judge_table, mine_shard, with_verdicts
from codegrep.labels.shards import Shard
from codegrep.labels.tokens import open_counter
from codegrep.runtime.artifacts import write_json


@dataclass(frozen=True)
class JudgeChoice:
    """A judge that a worker builds. cache: folder of its answers, for classes that take one."""

    kind: str
    params: Mapping[str, Any]
    where: str
    actors: int
    cache: str

    def open(self) -> Judge:
        """Create the judge.

        Raises:
            ConfigError: no such class, or it does not take the parameters.
        """
        module, _, name = self.kind.rpartition(".")
        try:
            made = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(f"judge.kind {self.kind!r} cannot be found: {error}", "See conf/judge") from None
        params = dict(self.params)
        if "cache" in inspect.signature(made).parameters:
            params["cache"] = self.cache
        try:
            judge: Judge = made(**params)
        except TypeError as error:
            raise ConfigError(f"judge.params: {error}", "See conf/judge") from None
        return judge


@dataclass(frozen=True)
class ShardFiles:
    """Where the files of shards are, below one folder."""

    folder: str

    def candidates(self, shard: Shard) -> Path:
        """Judged candidates."""
        return Path(self.folder) / f"{shard.name}.parquet"

    def unjudged(self, shard: Shard) -> Path:
        """Candidates that wait for a judge in the driver."""
        return Path(self.folder) / "unjudged" / f"{shard.name}.parquet"

    def record(self, shard: Shard) -> Path:
        """Its counts; what makes the shard done."""
        return Path(self.folder) / f"{shard.name}.json"

    def done(self, shard: Shard) -> bool:
        """Nothing is left to do: mined, and every question answered."""
        found = self.read(shard)
        return found is not None and not found.errors and self.candidates(shard).is_file()

    def read(self, shard: Shard) -> ShardRecord | None:
        """Return the record of a shard that was mined; None where it was not."""
        try:
            return ShardRecord.from_json(json.loads(self.record(shard).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None

    def write(self, shard: Shard, table: pa.Table, record: ShardRecord) -> None:
        """Candidates first, the record last."""
        self.record(shard).unlink(missing_ok=True)
        write_table(self.candidates(shard), table)
        write_json(self.record(shard), record.to_json())


def write_table(path: Path, table: pa.Table) -> None:
    """Parquet that is there as a whole or not at all; the same table gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    parquet.write_table(table, partial, compression="zstd")
    partial.replace(path)


class ShardMiner:
    """Ray Data's callable: mines shards, and judges them too where no other judge comes after it."""

    def __init__(
        self, settings: MiningSettings, tokenizer: str, files: ShardFiles, judge: JudgeChoice, with_tasks: bool
    ) -> None:
        pa.set_cpu_count(1)  # parallelism comes from shards
        pa.set_io_thread_count(1)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        self._settings, self._files, self._with_tasks = settings, files, with_tasks
        self._counter = open_counter(tokenizer)
        self._where = judge.where
        self._judge = judge.open() if judge.where == "miners" else None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Work on the shards of a batch."""
        return _each(batch, self._one)

    def _one(self, shard: Shard, _: bytes) -> bytes:
        table, record = mine_shard(shard, self._settings, self._counter, with_tasks=self._with_tasks)
        if self._judge is not None:
            self._files.write(shard, judge_table(table, record, self._judge, self._settings.min_tokens), record)
            table = table.slice(0, 0)
        elif self._where == "driver":
            write_table(self._files.unjudged(shard), table)
            write_json(self._files.unjudged(shard).with_suffix(".json"), record.to_json())
            table = table.slice(0, 0)
        packed = _packed(table, record)
        del table
        pa.default_memory_pool().release_unused()
        return packed


class ShardJudge:
    """Ray Data's callable after ShardMiner: asks a judge that waits for a server."""

    def __init__(self, files: ShardFiles, judge: JudgeChoice, min_tokens: int) -> None:
        self._files, self._judge, self._min_tokens = files, judge.open(), min_tokens

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Work on the shards of a batch."""
        return _each(batch, self._one)

    def _one(self, shard: Shard, packed: bytes) -> bytes:
        table, record = _unpacked(packed)
        self._files.write(shard, judge_table(table, record, self._judge, self._min_tokens), record)
        return b""


def _each(batch: dict[str, Any], work: Any) -> dict[str, list[Any]]:
    """Run `work` on each shard of a batch. What cannot be read is said in the row, and spoils no other shard."""
    out: dict[str, list[Any]] = {"shard": [], "packed": [], "failed": []}
    for text, packed, failed in zip(batch["shard"], batch["packed"], batch["failed"], strict=True):
        shard = Shard(**json.loads(str(text)))
        result, reason = b"", str(failed)
        if not reason:
            try:
                result = work(shard, bytes(packed))
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                reason = f"{type(error).__name__}: {str(error)[:300]}"
            except MemoryError:
                raise
            except Exception as error:  # a poisoned shard, whatever it does to the reader
                reason = f"{type(error).__name__}: {str(error)[:300]}"
        out["shard"].append(str(text))
        out["packed"].append(result)
        out["failed"].append(reason)
    return out


def _packed(table: pa.Table, record: ShardRecord) -> bytes:
    sink = pa.BufferOutputStream()
    about = {b"record": json.dumps(record.to_json()).encode()}
    table = table.replace_schema_metadata(about)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _unpacked(packed: bytes) -> tuple[pa.Table, ShardRecord]:
    table = pa.ipc.open_stream(packed).read_all()
    record = ShardRecord.from_json(json.loads(table.schema.metadata[b"record"]))
    return table.replace_schema_metadata(None), record


def mine_shards(
    shards: Sequence[Shard],
    settings: MiningSettings,
    tokenizer: str,
    files: ShardFiles,
    judge: JudgeChoice,
    workers: int | None,
) -> Iterator[tuple[Shard, str]]:
    """Mine and judge shards that are not done.

    Args:
        workers: shards at once; None takes the cluster's CPUs.

    Yields:
        Each finished shard, with "" or the reason why it was quarantined.

    Raises:
        DiskError: no space is left.
        InfrastructureError: workers died more often than Ray starts them again.
    """
    if not shards:
        return
    import ray
    import ray.data
    from ray.exceptions import RayError

    cpus = int(ray.cluster_resources().get("CPU", 1))
    at_once = max(1, min(len(shards), workers or cpus, cpus))
    rows = [{"shard": json.dumps(asdict(shard)), "packed": b"", "failed": ""} for shard in shards]
    miner = {
        "settings": settings,
        "tokenizer": tokenizer,
        "files": files,
        "judge": judge,
        "with_tasks": judge.where != "miners",
    }
    dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        ShardMiner, fn_constructor_kwargs=miner, batch_size=1, concurrency=at_once, num_cpus=1
    )
    if judge.where == "actors":
        asks = {"files": files, "judge": judge, "min_tokens": settings.min_tokens}
        dataset = dataset.map_batches(
            ShardJudge, fn_constructor_kwargs=asks, batch_size=1, concurrency=judge.actors, num_cpus=0
        )
    try:
        for batch in dataset.iter_batches(batch_size=None, prefetch_batches=0, batch_format="pandas"):
            for text, reason in zip(batch["shard"], batch["failed"], strict=True):
                yield Shard(**json.loads(text)), str(reason)
    except RayError as error:
        told = str(error)
        if "No space left" in told or "Disk quota" in told:
            raise DiskError("no space is left for labels", "Free some; the same command continues") from error
        lines = told.strip().splitlines() or [type(error).__name__]
        raise InfrastructureError(
            f"a worker of the stage label was lost: {lines[-1][:300]}", "The same command continues where it was"
        ) from error


def judged_by_driver(
    shards: Sequence[Shard], files: ShardFiles, judge: Any, min_tokens: int
) -> Iterator[tuple[Shard, str]]:
    """Verdicts of a judge that is a Ray Data pipeline of its own, over the unjudged candidates of all shards.

    Args:
        judge: has `judge_files(paths, min_tokens)`, which yields (path, position, Relevance) in any order, and `label`.
    """
    waiting = {str(files.unjudged(shard)): shard for shard in shards if files.unjudged(shard).is_file()}
    left = {p: _askable(p, min_tokens) for p in waiting}
    answers: dict[str, dict[int, Relevance]] = {path: {} for path in waiting}
    for path in [p for p in waiting if not left[p]]:
        yield _finish(waiting.pop(path), files, answers.pop(path), judge.label), ""
    for path, position, verdict in judge.judge_files(sorted(waiting), min_tokens):
        answers[path][position] = verdict
        if len(answers[path]) == left[path]:
            yield _finish(waiting[path], files, answers.pop(path), judge.label), ""


def _askable(path: str, min_tokens: int) -> int:
    return sum(
        1 for tokens in parquet.read_table(path, columns=["tokens"]).column(0).to_pylist() if tokens >= min_tokens
    )


def _finish(shard: Shard, files: ShardFiles, verdicts: dict[int, Relevance], label: str) -> Shard:
    unjudged = files.unjudged(shard)
    record = ShardRecord.from_json(json.loads(unjudged.with_suffix(".json").read_text(encoding="utf-8")))
    files.write(shard, with_verdicts(parquet.read_table(unjudged), record, verdicts, label), record)
    return shard
