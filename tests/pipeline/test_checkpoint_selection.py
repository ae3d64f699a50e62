"""Which checkpoint a run keeps, and which issues chose it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from codegrep.errors import ConfigError
from codegrep.issues import Issue
from codegrep.pipeline.checkpoint_selection import MeasuredCheckpoint, best, read, reported, selection_issues
from codegrep.pipeline.prepared import Prepared
from tests.sweeps.composed import composed


def issues_of(repo: str) -> tuple[Issue, ...]:
    name = repo.replace("/", "__")
    return tuple(Issue(f"{name}-{n}", repo, "1" * 40, f"statement {n}", gold_files=("a.py",)) for n in range(20))


HELD_OUT = issues_of("o/r")
OWN = Prepared((), HELD_OUT, "")  # data of one's own: no roles, and nothing for validation
SWE_BENCH = (
    *("data=swe_bench", "data.sources.swe_bench.args.path=x", "data.sources.swe_bench.args.repositories=x"),
    *("train.checkpoint_selection.every=2", "train.checkpoint_selection.issues=8"),
)


def test_selection_and_report_never_share_an_issue() -> None:
    config = composed("train.checkpoint_selection.every=2", "train.checkpoint_selection.issues=8")
    chosen, left = selection_issues(config, OWN), reported(config, OWN)
    assert len(chosen) == 8 and len(left) == 12
    assert {i.instance_id for i in chosen} | {i.instance_id for i in left} == {i.instance_id for i in HELD_OUT}
    assert left == [i for i in HELD_OUT if i in left], "the order of the report is that of the split"


def test_selection_follows_the_splits_seed_alone() -> None:
    config = composed("train.checkpoint_selection.every=2", "train.checkpoint_selection.issues=8")
    assert selection_issues(config, Prepared((), HELD_OUT[::-1], "")) == selection_issues(config, OWN)
    assert selection_issues(dataclasses.replace(config, seed=5), OWN) == selection_issues(config, OWN)
    other = composed("train.checkpoint_selection.every=2", "train.checkpoint_selection.issues=8", "data.split.seed=1")
    assert selection_issues(other, OWN) != selection_issues(config, OWN)


def test_without_checkpoint_selection_everything_is_reported() -> None:
    assert reported(composed(), OWN) == list(HELD_OUT)


def test_validation_issues_choose_where_a_split_has_them_and_everything_held_out_is_reported() -> None:
    config = composed(*SWE_BENCH, "data.split.max_held_out=4")
    prepared = Prepared((), issues_of("psf/requests"), "", issues_of("encode/httpx"), {"psf/requests": "held_out_1"})
    chosen = selection_issues(config, prepared)
    assert len(chosen) == 8 and {issue.repo for issue in chosen} == {"encode/httpx"}
    assert reported(config, prepared) == list(prepared.held_out)


@pytest.mark.parametrize("validation", ["[validation]", "[]"])
def test_what_is_held_out_by_role_never_chooses(validation: str) -> None:
    config = composed(*SWE_BENCH, f"data.split.validation={validation}")
    measured = Prepared((), issues_of("psf/requests"), "", roles={"psf/requests": "held_out_1"})
    with pytest.raises(ConfigError, match=r"no issue of data\.split\.validation"):
        selection_issues(config, measured)
    own = composed(*SWE_BENCH, "data.split.validation=[]", "data.split.enforce_roles=false")
    assert len(selection_issues(own, measured)) == 8
    mixed = Prepared((), (*measured.held_out, *HELD_OUT), "", roles=measured.roles)
    if validation == "[]":
        assert {issue.repo for issue in selection_issues(config, mixed)} == {"o/r"}


def test_a_selection_that_leaves_nothing_to_report_is_refused() -> None:
    with pytest.raises(ConfigError, match="none is left to report on"):
        selection_issues(
            composed(
                "train.checkpoint_selection.every=2",
                "train.checkpoint_selection.issues=20",
                "data.split.max_held_out=0",
            ),
            OWN,
        )


def test_a_selection_that_cannot_fit_is_refused_before_anything_starts() -> None:
    composed("train.checkpoint_selection.every=2", "train.checkpoint_selection.issues=15")  # the demo holds out 16
    composed("train.checkpoint_selection.every=0", "train.checkpoint_selection.issues=32")
    with pytest.raises(ConfigError, match="all 16 held-out issues"):
        composed("train.checkpoint_selection.every=2", "train.checkpoint_selection.issues=32")


def test_the_best_checkpoint_is_the_earliest_of_equals() -> None:
    measured = [
        MeasuredCheckpoint(2, 0.3, 8, 0, "a"),
        MeasuredCheckpoint(4, 0.5, 8, 0, "b"),
        MeasuredCheckpoint(6, 0.5, 8, 0, "c"),
        MeasuredCheckpoint(8, 0.4, 8, 0, "d"),
    ]
    assert best(measured).step == 4
    # The same scores added up in another order.
    assert best([MeasuredCheckpoint(2, 5 / 11, 8, 0, "a"), MeasuredCheckpoint(4, 1 - 6 / 11, 8, 0, "b")]).step == 2


def test_no_record_is_no_checkpoint(tmp_path: Path) -> None:
    assert read(tmp_path / "checkpoints.json") == []
