"""A batch scored: rewards, masks, dead groups, turn weights, and the sums that are logged of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegrep.rewards.designs import v3
from codegrep.rewards.governance import Rules
from codegrep.rewards.outcome import RewardParts
from codegrep.rewards.signal import TrainingSignal
from codegrep.rewards.turn_scores import TurnScoring
from codegrep.training.score_batch import BatchScoring, DeadGroups, ScoredRollout, score_batch
from codegrep.training.signal_metrics import signal_sums
from codegrep.training.step_metrics import Tally, add_up, rollout_sums
from tests.training.made_rollouts import issues
from tests.training.varied_rollouts import ENDS, GRAM, HANDLING, MAX_CALLS, Varied, by_calls

PAPER = Rules(HANDLING, True, True, MAX_CALLS, *GRAM)
CLEAN = Rules(HANDLING, False, False, MAX_CALLS, *GRAM)
ISSUES = {issue.instance_id: issue for issue in issues(2)}


def score(
    rules: Rules,
    turn_scoring: TurnScoring = TurnScoring(),  # noqa: B008  # frozen
    dead_groups: DeadGroups = "keep",
    collector: Varied | None = None,
) -> list[ScoredRollout]:
    rollouts = (collector or Varied()).collect(list(ISSUES.values()), 8, 0)
    return score_batch(rollouts, ISSUES, 8, BatchScoring(TrainingSignal(v3, rules=rules), turn_scoring, dead_groups))


def kept(one: ScoredRollout) -> list[bool]:
    return [any(one.mask[turn.start : turn.end]) for turn in one.rollout.turns]


@pytest.mark.parametrize(("rules", "in_group"), [(PAPER, True), (CLEAN, False)])
def test_every_end_has_its_mask_and_its_place(rules: Rules, in_group: bool) -> None:
    for one, end in zip(score(rules), ENDS * 2, strict=True):
        if end in ("max_tokens", "lost"):
            assert (
                not any(one.mask)
                and (one.score.reward == RewardParts(0.0)) is in_group
                and (one.score.reward is None) != in_group
            )
        elif end == "excessive_calls":
            assert kept(one) == [True, False, False] and one.score.reward == RewardParts(0.0)
        elif end == "repetition":
            assert kept(one) == [False, True, False] and one.score.reward == RewardParts(0.0)
        else:
            assert one.mask == tuple(one.rollout.loss_mask) and one.score.reward is not None
            assert one.score.reward.parts or end != "answer"
        # Tool text is in the loss of nobody.
        assert all(sampled or not masked for sampled, masked in zip(one.rollout.loss_mask, one.mask, strict=True))


def test_dead_groups_stay_or_go_as_a_whole() -> None:
    same = Varied(ends=("answer",), same=True)
    for one in score(Rules(), dead_groups="drop", collector=same):
        dead = one.rollout.instance_id == "o__r-0"
        assert any(one.mask) is not dead and one.alive is not dead
    assert all(any(one.mask) for one in score(Rules(), dead_groups="keep", collector=same))


def test_masked_rollouts_are_not_judged() -> None:
    asked: list[int] = []

    def scorer(trajectory):  # type: ignore[no-untyped-def]
        asked.append(len(trajectory.turns))
        return by_calls(trajectory)

    batch = score(PAPER, TurnScoring(scorer))
    statuses = [one.turn_status for one in batch[:8]]
    wanted = ["weighted", "weighted"] + ["ineligible"] * 5 + ["weighted"]  # of ENDS; max_turns has no answer
    assert statuses == wanted and len(asked) == 6
    assert all(one.turn_scores is None for one in batch if one.turn_status != "weighted")


def test_turn_weights_keep_the_mass_of_what_is_in_the_loss() -> None:
    for one in score(PAPER, TurnScoring(by_calls, only_answered=False)):
        for advantage in (1.0, -1.0):
            weights = one.turn_weights(advantage, 0.1)
            assert sum(n * w for n, w in zip(one.tokens(), weights, strict=True)) == pytest.approx(sum(one.mask))


def test_what_is_logged() -> None:
    batch = score(PAPER, TurnScoring(by_calls))
    numbers = add_up(
        [
            signal_sums(batch[:8], [0.5] * 8, 0.1),
            signal_sums(batch[8:], [-0.5] * 8, 0.1),
            rollout_sums(batch, 8),
        ]
    )
    for cause, count in (("max_tokens", 2), ("infrastructure", 2), ("excessive_calls", 2), ("repetition", 2)):
        assert numbers[f"masked/{cause}"] == count
    assert numbers["masked/answer"] == numbers["masked/dead_group"] == numbers["turn_scores/invalid"] == 0
    sampled = sum(one.rollout.generated_tokens for one in batch)
    inside = sum(sum(one.mask) for one in batch)
    assert numbers["masked/tokens"] == pytest.approx(1 - inside / sampled)
    assert numbers["advantage/mean_abs"] == 0.5 and numbers["advantage/positive_rate"] == 0.5
    # Turn weights keep the mass, masks take it away.
    assert numbers["advantage/mass"] == pytest.approx(0.5 * inside / sampled)
    assert numbers["turn_scores/weighted"] == pytest.approx(6 / 16)
    assert numbers["group/scored"] == 8 and numbers["group/reward_range"] > 0


def test_every_logged_name_is_in_the_catalogue() -> None:
    from codegrep.tracking.names import describe

    batch = score(CLEAN, TurnScoring(by_calls), "drop")
    sums = signal_sums(batch, [1.0] * 16, 0.1) | rollout_sums(batch, 8)
    assert not [name for name in sums if describe(name) is None]


def test_the_machines_losses_are_counted_whatever_reward_they_got() -> None:
    for rules in (PAPER, CLEAN):
        batch = score(rules)
        numbers = add_up([rollout_sums(batch, 8)])
        assert numbers["errors/infrastructure"] == 2
        assert numbers["rollout/exit_infrastructure"] == pytest.approx(2 / 16)


def test_scoring_changes_no_record() -> None:
    before = Varied().collect(list(ISSUES.values()), 8, 0)
    batch = score(PAPER)
    assert [one.rollout for one in batch] == before
    assert replace(before[0]) == before[0]


def test_a_mean_over_nothing_is_not_logged_and_a_total_of_nothing_is_0() -> None:
    tally = Tally()
    tally.mean("policy/kl", 0.0, 0.0)
    tally.total("masked/answer", 0.0)
    assert add_up([tally.sums(), tally.sums()]) == {"masked/answer": 0.0}
    assert add_up([tally.sums(), {"policy/kl": (3.0, 2.0)}, {"policy/kl": (1.0, 8.0)}])["policy/kl"] == 0.4
