"""Rollouts read without their tokens have the outcomes of the whole records; what is broken is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegrep.errors import DataError
from codegrep.issues.issue import Entity, Issue, LineRange
from codegrep.lab.stored import read_stored, rollout_folders
from codegrep.rollout.outcome import conduct_of, outcome_for, outcome_of
from codegrep.rollout.record import Rollout
from codegrep.rollout.store import write_rollouts
from tests.lab.made import write_run

# issue-1 has two gold files; one of them has no gold lines: it was mined.
ISSUES = {
    "issue-1": Issue("issue-1", "o/n", "c", "s", gold_files=("a.py", "b.py"), gold_ranges=(LineRange("a.py", 2, 4),)),
    "issue-0": Issue(
        "issue-0",
        "o/n",
        "c",
        "s",
        gold_files=("a.py",),
        gold_ranges=(LineRange("a.py", 2, 4),),
        gold_entities=(Entity("a.py", "Model", "class"),),
    ),
}


def expected(rollout: Rollout) -> object:
    issue = ISSUES.get(rollout.instance_id)
    judgement = True if rollout.rollout_id.endswith("-1") else None
    return outcome_for(rollout, issue, judgement=judgement) if issue else outcome_of(rollout, judgement=judgement)


@pytest.mark.parametrize("seed", range(4))
def test_outcomes_equal_those_of_the_records(tmp_path: Path, seed: int) -> None:
    rollouts = write_run(tmp_path, seed=seed)
    judgements = {r.rollout_id: True for r in rollouts if r.rollout_id.endswith("-1")}
    stored = read_stored(rollout_folders([tmp_path]), ISSUES, judgements)
    assert stored.rollout_ids == [r.rollout_id for r in rollouts]
    assert stored.outcomes == [expected(r) for r in rollouts]
    assert [c.calls_per_turn for c in stored.conducts] == [conduct_of(r).calls_per_turn for r in rollouts]
    assert [sum(tokens) for tokens in stored.turn_tokens] == [r.generated_tokens for r in rollouts]
    assert {o.malformed_answers for o in stored.outcomes} > {0, 1}
    assert stored.left_out == {}


def test_groups_are_steps_or_issues(tmp_path: Path) -> None:
    write_run(tmp_path, steps=3, issues=4, size=6)
    folders = rollout_folders([tmp_path])
    by_step = read_stored(folders)
    assert len(by_step.group_names) == 12
    assert by_step.groups.tolist() == [g for g in range(12) for _ in range(6)]
    assert by_step.group_names[5] == "train-0123456789ab/issue-1/step 1"
    by_issue = read_stored(folders, group_by="issue")
    assert by_issue.group_names == [f"train-0123456789ab/issue-{n}" for n in range(4)]


def test_a_rollout_sampled_again_counts_once(tmp_path: Path) -> None:
    rollouts = write_run(tmp_path, steps=1, issues=1, size=3)
    again = rollouts[0]
    again.answer, again.answered = ["sub/d.py"], True
    (folder,) = rollout_folders([tmp_path])
    write_rollouts(folder, [again])
    stored = read_stored([folder])
    assert len(stored) == 3
    assert stored.left_out == {"sampled again later": 1}
    assert stored.outcomes[stored.rollout_ids.index(again.rollout_id)].predicted == ("sub/d.py",)


def test_damaged_files_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    write_run(tmp_path)
    (folder,) = rollout_folders([tmp_path])
    parts = sorted(folder.glob("part-*.parquet"))
    parts[0].write_bytes(parts[0].read_bytes()[:200])
    (folder / "part-9-other.parquet").write_bytes(b"no parquet")
    stored = read_stored([folder])
    assert stored.left_out == {"file that cannot be read": 2}
    assert len(stored) == 72 - 7
    for part in parts:
        part.write_bytes(b"")
    with pytest.raises(DataError, match="no rollout could be read"):
        read_stored([folder])


def test_places(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        rollout_folders([tmp_path / "nowhere"])
    with pytest.raises(DataError, match="no rollouts are stored"):
        rollout_folders([tmp_path])
    write_run(tmp_path)
    other = tmp_path / "artifacts" / "measured-base-1" / "rollouts"
    other.mkdir(parents=True)
    write_rollouts(other, write_run(tmp_path / "x", steps=1, issues=1, size=2))
    assert [f.parent.name for f in rollout_folders([tmp_path / "artifacts"])] == ["train-0123456789ab"]
    assert rollout_folders([other]) == [other]
