"""Which checkpoint a run keeps, and which issues chose it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from codegrep.errors import ConfigError
from codegrep.issues import Issue
from codegrep.pipeline.ladder import Rung, best, read, reported, selection
from tests.cluster.composed import composed

HELD_OUT = [Issue(f"o__r-{n}", "o/r", "1" * 40, f"statement {n}", gold_files=("a.py",)) for n in range(20)]


def test_selection_and_report_never_share_an_issue() -> None:
    config = composed("train.ladder.every=2", "train.ladder.issues=8")
    chosen, left = selection(config, HELD_OUT), reported(config, HELD_OUT)
    assert len(chosen) == 8 and len(left) == 12
    assert {i.instance_id for i in chosen} | {i.instance_id for i in left} == {i.instance_id for i in HELD_OUT}
    assert left == [i for i in HELD_OUT if i in left], "the order of the report is that of the split"


def test_selection_follows_the_splits_seed_alone() -> None:
    config = composed("train.ladder.every=2", "train.ladder.issues=8")
    assert selection(config, HELD_OUT[::-1]) == selection(config, HELD_OUT)
    assert selection(dataclasses.replace(config, seed=5), HELD_OUT) == selection(config, HELD_OUT)
    other = composed("train.ladder.every=2", "train.ladder.issues=8", "data.split.seed=1")
    assert selection(other, HELD_OUT) != selection(config, HELD_OUT)


def test_without_a_ladder_everything_is_reported() -> None:
    assert reported(composed(), HELD_OUT) == HELD_OUT


def test_a_selection_that_leaves_nothing_to_report_is_refused() -> None:
    with pytest.raises(ConfigError, match="none is left to report on"):
        selection(composed("train.ladder.every=2", "train.ladder.issues=20", "data.split.max_held_out=0"), HELD_OUT)


def test_a_selection_that_cannot_fit_is_refused_before_anything_starts() -> None:
    composed("train.ladder.every=2", "train.ladder.issues=15")  # the demo holds out 16
    composed("train.ladder.every=0", "train.ladder.issues=32")
    with pytest.raises(ConfigError, match="all 16 held-out issues"):
        composed("train.ladder.every=2", "train.ladder.issues=32")


def test_the_best_rung_is_the_earliest_of_equals() -> None:
    rungs = [Rung(2, 0.3, 8, 0, "a"), Rung(4, 0.5, 8, 0, "b"), Rung(6, 0.5, 8, 0, "c"), Rung(8, 0.4, 8, 0, "d")]
    assert best(rungs).step == 4
    # The same scores added up in another order.
    assert best([Rung(2, 5 / 11, 8, 0, "a"), Rung(4, 1 - 6 / 11, 8, 0, "b")]).step == 2


def test_no_record_is_no_rung(tmp_path: Path) -> None:
    assert read(tmp_path / "ladder.json") == []
