"""The replay scores as training does: rewards, place in the group, share of tokens in the loss."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from codegrep.issues.issue import Entity, Issue, LineRange
from codegrep.lab.designs import SHIPPED, load_designs
from codegrep.lab.rescored import rescore
from codegrep.lab.stored import read_stored, rollout_folders
from codegrep.pipeline.mined_targets import labelled
from codegrep.rollout.outcome import outcome_for
from codegrep.rollout.store import write_rollouts
from codegrep.training.score_batch import BatchScoring, score_batch
from tests.lab.made import write_run

SIZE = 6
SPECS = (*SHIPPED, "governed: reward=v3 advantage=efficiency governance=signal_reshaping")
# Repetition is looked for in tokens, which the replay does not read.
WITHOUT_REPETITION = "governance.repetition_times=0"


def test_rewards_masks_and_groups(tmp_path: Path) -> None:
    rollouts = write_run(tmp_path, size=SIZE)
    issues = {
        rollout.instance_id: Issue(
            rollout.instance_id,
            "o/n",
            "c",
            "s",
            gold_files=tuple(rollout.gold_files),
            gold_ranges=(LineRange("a.py", 2, 9),),
        )
        for rollout in rollouts
    }
    stored = read_stored(rollout_folders([tmp_path]), issues)
    for design in load_designs([*SHIPPED, f"{SPECS[-1]} {WITHOUT_REPETITION}"]):
        batch = score_batch(rollouts, issues, SIZE, BatchScoring(design.signal))
        replayed = rescore(stored, design)
        rewards = [float("nan") if one.score.reward is None else one.score.reward.total for one in batch]
        assert replayed.batch.rewards == pytest.approx(rewards, nan_ok=True), design.name
        assert [one.alive for one in batch] == (replayed.batch.alive & ~np.isnan(replayed.batch.rewards)).tolist()
        factors = [one.score.factor for one in batch]
        assert replayed.batch.factors == pytest.approx(factors), design.name
        kept = [sum(one.mask) / one.rollout.generated_tokens for one in batch]
        assert replayed.kept == pytest.approx(kept), design.name


def test_mined_samples_have_the_gold_lines_and_entities_of_their_issue(tmp_path: Path) -> None:
    # The second sample of an issue is `id@2`: another set of gold files, the patch's lines and entities.
    gold = Issue(
        *("issue-0", "o/n", "c", "s"),
        gold_files=("a.py",),
        gold_ranges=(LineRange("a.py", 2, 9),),
        gold_entities=(Entity("a.py", "Model", "class"),),
    )
    targets = tmp_path / "training_targets.json"
    targets.write_text(json.dumps({"issue-0": [["a.py"], ["a.py", "b.py"]]}), encoding="utf-8")
    samples = {issue.instance_id: issue for issue in labelled([gold], targets, keep_unlabelled=False)}
    rollouts = write_run(tmp_path, issues=1, size=SIZE)
    for rollout in rollouts:
        rollout.instance_id, rollout.gold_files = "issue-0@2", ["a.py", "b.py"]
    (folder,) = rollout_folders([tmp_path])
    write_rollouts(folder, rollouts)
    prepared = {"issue-0": gold}
    stored = read_stored([folder], prepared)
    assert stored.outcomes == [outcome_for(rollout, samples["issue-0@2"]) for rollout in rollouts]
    assert all(outcome.gold_ranges and outcome.mined_files == {"b.py"} for outcome in stored.outcomes)
    for design in load_designs(SHIPPED):
        batch = score_batch(rollouts, samples, SIZE, BatchScoring(design.signal))
        rewards = [float("nan") if one.score.reward is None else one.score.reward.total for one in batch]
        assert rescore(stored, design).batch.rewards == pytest.approx(rewards, nan_ok=True), design.name
