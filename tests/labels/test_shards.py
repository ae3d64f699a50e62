"""Shards: content, imports, what is poisoned, and counts that add up."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from codegrep.errors import DataError
from codegrep.judges.files_rules import RulesJudge
from codegrep.labels import shard_work
from codegrep.labels.importing import imported, trajectory_files
from codegrep.labels.shard_work import MiningSettings, ShardRecord, judge_table, mine_shard
from codegrep.labels.shards import is_common, shards_of
from codegrep.labels.tokens import WordCounter
from codegrep.labels.trajectory import Trajectory, to_arrow
from codegrep.runtime.artifacts import file_content
from tests.labels.test_adapters import MINI, NEBIUS
from tests.labels.trajectories import read_of

LONG = "I see the issue now. " + "The cache is filled before the lock is taken, so two callers can meet there. " * 3


def write(path: Path, trajectories: list[Trajectory], group: int = 2) -> Path:
    parquet.write_table(to_arrow(trajectories), path, row_group_size=group)
    return path


def some(count: int) -> list[Trajectory]:
    return [read_of(f"src/f{n}.py", LONG, f"t{n}", f"owner__name-{n}") for n in range(count)]


def test_a_shard_is_named_by_its_content(tmp_path: Path) -> None:
    first = shards_of(write(tmp_path / "a.parquet", some(5)), 3)
    again = shards_of(write(tmp_path / "b.parquet", some(5)), 3)
    assert [s.name for s in first] == [s.name for s in again] and [s.rows for s in first] == [2, 2, 1]
    assert [s.number for s in first] == [3, 4, 5] and len({s.content for s in first}) == 3
    changed = some(5)
    changed[4] = read_of("src/other.py", LONG, "t4", "owner__name-4")
    third = shards_of(write(tmp_path / "c.parquet", changed), 3)
    assert [a.content == b.content for a, b in zip(first, third, strict=True)] == [True, True, False]


def test_mining_judging_and_counting_of_a_shard(tmp_path: Path) -> None:
    settings = MiningSettings(exclude_repositories=frozenset({"owner/name"}))
    trajectories = [*some(2), read_of("src/x.py", "short", "t9", "other__repo-1")]
    trajectories[2] = Trajectory("t9", "other__repo-1", "Other/Repo", trajectories[2].messages)
    (shard,) = shards_of(write(tmp_path / "a.parquet", trajectories, 9), 0)
    table, record = mine_shard(shard, MiningSettings(), WordCounter(), with_tasks=True)
    assert table.column("task").to_pylist() == ["It fails."] * 3
    table = judge_table(table, record, RulesJudge(), 30)
    assert table.column("verdict").to_pylist() == ["RELEVANT", "RELEVANT", ""]
    assert (record.rows, record.reads, record.files, record.judged, record.relevant) == (3, 3, 3, 2, 2)
    assert ShardRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    left, excluded = mine_shard(shard, settings, WordCounter(), with_tasks=False)
    assert left.column("row").to_pylist() == [2] and excluded.excluded == {"excluded repository": 2}


def test_one_poisoned_row_is_quarantined_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shard,) = shards_of(write(tmp_path / "a.parquet", some(5), 9), 0)
    real = shard_work.mine

    def poisoned(trajectories: pa.Array, rules: object) -> object:
        if "f3.py" in str(trajectories.to_pylist()):
            raise RuntimeError("this row cannot be read")
        return real(trajectories, rules)  # type: ignore[arg-type]

    monkeypatch.setattr(shard_work, "mine", poisoned)
    table, record = mine_shard(shard, MiningSettings(), WordCounter(), with_tasks=False)
    assert table.column("trajectory_id").to_pylist() == ["t0", "t1", "t2", "t4"]
    assert record.quarantine[0]["trajectory_id"] == "t3" and "cannot be read" in record.quarantine[0]["reason"]


def test_broken_text_does_not_stop_mining(tmp_path: Path) -> None:
    table = to_arrow(some(1))
    raw = table.to_pylist()
    raw[0]["trajectory"][-1]["content"] = "x" * 40
    data = parquet.write_table(
        pa.Table.from_pylist(raw, schema=table.schema), tmp_path / "a.parquet", compression="none"
    )
    assert data is None
    path = tmp_path / "a.parquet"
    path.write_bytes(path.read_bytes().replace(b"x" * 40, b"\xff" * 40))
    (shard,) = shards_of(path, 0)
    found, _ = mine_shard(shard, MiningSettings(), WordCounter(), with_tasks=False)
    assert found.column("evidence").to_pylist() == ["\ufffd" * 40]


def test_other_forms_are_imported_once_and_bad_rows_are_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    with gzip.open(path, "wt") as out:
        out.write(json.dumps(NEBIUS) + "\n{broken\n" + json.dumps(MINI) + '\n{"no": "trajectory"}\n')
    made, bad = imported(path, file_content(path), tmp_path / "in", "auto", lambda _: None)
    assert is_common(parquet.read_schema(made)) and parquet.read_metadata(made).num_rows == 2
    assert [b["where"] for b in bad] == ["rows.jsonl.gz line 2", "rows.jsonl.gz line 4"]
    when = made.stat().st_mtime_ns
    assert imported(path, file_content(path), tmp_path / "in", "auto", lambda _: None) == (made, bad)
    assert made.stat().st_mtime_ns == when
    with pytest.raises(DataError, match=r"labels\.format"):
        imported(path, "0" * 64, tmp_path / "in", "nebiuss", lambda _: None)


def test_files_are_found_and_missing_ones_said(tmp_path: Path) -> None:
    (tmp_path / "b.traj").write_text("{}")
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "note.txt").write_text("")
    assert [p.name for p in trajectory_files([str(tmp_path)])] == ["a.jsonl", "b.traj"]
    with pytest.raises(DataError, match="no trajectories at"):
        trajectory_files([str(tmp_path / "nowhere")])
