from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegrep.errors import DataError
from codegrep.rollout.record import CallRecord, Rollout, Turn, from_row, to_row
from codegrep.rollout.store import SCHEMA, RolloutWriter, read_rollouts, write_rollouts

text = st.text(max_size=10)
ints = st.integers(0, 2**31 - 1)
calls = st.builds(
    CallRecord,
    number=st.integers(1, 9),
    name=text,
    arguments=text,
    status=text,
    text=text,
    paths=st.lists(text, max_size=2),
    seconds=st.floats(0, 9),
)
turns = st.builds(
    Turn,
    start=ints,
    end=ints,
    text=text,
    calls=st.lists(calls, max_size=2),
    observation=text,
    weight=st.floats(0, 1),
    weights_version=ints,
)
rollouts = st.builds(
    Rollout,
    rollout_id=text,
    instance_id=text,
    repo=text,
    base_commit=text,
    source=text,
    prompt_ids=st.lists(ints, max_size=3),
    completion_ids=st.lists(ints, max_size=3),
    loss_mask=st.lists(st.integers(0, 1), max_size=3),
    logprobs=st.lists(st.floats(-50, 0), max_size=3),
    turns=st.lists(turns, max_size=2),
    answer=st.lists(text, max_size=2),
    answered=st.booleans(),
    gold_files=st.lists(text, max_size=2),
    exit_cause=text,
    error=text,
    step=st.integers(-1, 9),
    seed=st.integers(0, 2**63 - 1),
)


def some(name: str) -> Rollout:
    return Rollout(
        name, "i", "o/r", "c", "policy", [1], [2], [1], [-0.1], [Turn(0, 1, "t")], ["a"], True, ["a"], "answer"
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(rollouts, min_size=1, max_size=3))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, written: list[Rollout]) -> None:
    folder = tmp_path_factory.mktemp("rollouts")
    write_rollouts(folder, written)
    assert [asdict(r) for r in read_rollouts(folder)] == [asdict(r) for r in written]


@settings(max_examples=30, deadline=None)
@given(rollouts)
def test_rows_are_plain_data_and_give_the_rollout_back(rollout: Rollout) -> None:
    assert from_row(json.loads(json.dumps(to_row(rollout)))) == rollout


def test_parts_in_order_of_writing(tmp_path: Path) -> None:
    with RolloutWriter(tmp_path / "new", rows_per_part=2) as writer:
        for name in "abcde":
            writer.add(some(name))
        assert [r.rollout_id for r in read_rollouts(tmp_path / "new")] == list("abcd")
    assert [r.rollout_id for r in read_rollouts(tmp_path / "new")] == list("abcde")
    assert len(list((tmp_path / "new").iterdir())) == 3
    assert read_rollouts(tmp_path / "absent") == []


def test_rollouts_before_an_error_are_kept(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RolloutWriter(tmp_path) as writer:
        writer.add(some("a"))
        raise RuntimeError
    assert len(read_rollouts(tmp_path)) == 1


def test_unfinished_part_is_not_seen(tmp_path: Path) -> None:
    (tmp_path / "part-0.tmp").write_bytes(b"PAR1")
    assert read_rollouts(tmp_path) == []


def test_unknown_version_and_damage_are_named(tmp_path: Path) -> None:
    part = write_rollouts(tmp_path, [some("a")])
    pq.write_table(pa.Table.from_pylist([], schema=SCHEMA.with_metadata({b"codegrep.rollout.version": b"99"})), part)
    with pytest.raises(DataError, match="version 99"):
        read_rollouts(tmp_path)
    part.write_bytes(b"PAR1 not a file")
    with pytest.raises(DataError, match="cannot be read"):
        read_rollouts(tmp_path)


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    rollout = some("a")
    rollout.answer = ["bad\udcff.py"]
    write_rollouts(tmp_path, [rollout])
    assert read_rollouts(tmp_path)[0].answer == ["bad?.py"]
