"""Weights of turns from their scores: the formulas of arXiv 2605.07276 by hand, and that no loss is gained or lost."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.rewards.turn_credit import RolloutFacts, TurnFacts, TurnScores
from codegrep.rewards.turn_scores import TurnScoring, weigh_turns

GOLD = frozenset({"a.py"})


def test_a_good_rollout_by_hand() -> None:
    # s̄ = (10·1 + 30·0.2) / 40 = 0.4
    assert weigh_turns([1.0, 0.2], [10, 30], 0.7) == pytest.approx([2.5, 0.5])


def test_a_bad_rollout_by_hand() -> None:
    # a+ = 2.5, 0.5; 2 - a+ = -0.5 -> 0.1, and 1.5; c = 40 / (10·0.1 + 30·1.5) = 40/46
    assert weigh_turns([1.0, 0.2], [10, 30], -0.7) == pytest.approx([0.1 * 40 / 46, 1.5 * 40 / 46])


def test_without_the_floor_at_work_c_is_one() -> None:
    # s̄ = 0.5, a+ = 1.2, 0.8; 2 - a+ = 0.8, 1.2; their mass is 40 already
    assert weigh_turns([0.6, 0.4], [20, 20], -1.0) == pytest.approx([0.8, 1.2])


def test_advantage_zero_is_as_a_positive_one() -> None:
    assert weigh_turns([1.0, 0.2], [10, 30], 0.0) == weigh_turns([1.0, 0.2], [10, 30], 1.0)


def test_a_turn_without_a_score_is_outside_both_sums() -> None:
    assert weigh_turns([1.0, None, 0.5], [10, 99, 10], 1.0) == pytest.approx([4 / 3, 1.0, 2 / 3])


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize(
    ("scores", "tokens"),
    [([0.0, 0.0], [5, 5]), ([None, None], [5, 5]), ([], []), ([0.7, 0.7], [5, 9]), ([1.0, 0.0], [0, 9])],
)
def test_guards_leave_the_plain_mask(scores: TurnScores, tokens: list[int], advantage: float) -> None:
    assert weigh_turns(scores, tokens, advantage) == pytest.approx([1.0] * len(tokens))


scored_turns = st.lists(
    st.tuples(st.one_of(st.none(), st.floats(0, 1, allow_subnormal=False)), st.integers(0, 200)), max_size=8
)
advantages = st.floats(-3, 3)


@given(scored_turns, advantages)
def test_mass_is_preserved(turns: list[tuple[float | None, int]], advantage: float) -> None:
    scores, tokens = [s for s, _ in turns], [n for _, n in turns]
    weights = weigh_turns(scores, tokens, advantage)
    mass = sum(n * a for n, a in zip(tokens, weights, strict=True))
    assert mass == pytest.approx(sum(tokens), rel=1e-9)


@given(scored_turns, advantages)
def test_weights_are_bounded(turns: list[tuple[float | None, int]], advantage: float) -> None:
    scores, tokens = [s for s, _ in turns], [n for _, n in turns]
    for weight, count in zip(weigh_turns(scores, tokens, advantage), tokens, strict=True):
        assert 0.0 <= weight <= (sum(tokens) / count if count else 1.0) * (1 + 1e-9)
        if advantage < 0:
            assert weight > 0.0  # the floor


@given(scored_turns, advantages, st.randoms())
def test_the_order_of_turns_does_not_matter(
    turns: list[tuple[float | None, int]], advantage: float, random: object
) -> None:
    order = list(range(len(turns)))
    random.shuffle(order)  # type: ignore[attr-defined]
    weights = weigh_turns([s for s, _ in turns], [n for _, n in turns], advantage)
    shuffled = weigh_turns([turns[i][0] for i in order], [turns[i][1] for i in order], advantage)
    assert shuffled == pytest.approx([weights[i] for i in order])


@given(scored_turns)
def test_a_better_turn_is_pushed_further_up_and_less_far_down(turns: list[tuple[float | None, int]]) -> None:
    scores, tokens = [s for s, _ in turns], [n for _, n in turns]
    good, bad = (weigh_turns(scores, tokens, sign) for sign in (1.0, -1.0))
    ranked = sorted((s, i) for i, (s, n) in enumerate(turns) if s is not None and n)
    for (_, lower), (_, higher) in pairwise(ranked):
        assert good[lower] <= good[higher] + 1e-9 and bad[lower] >= bad[higher] - 1e-9


@given(scored_turns, advantages, st.floats(0.1, 1))
def test_only_the_relation_of_scores_counts(
    turns: list[tuple[float | None, int]], advantage: float, scale: float
) -> None:
    scores, tokens = [s for s, _ in turns], [n for _, n in turns]
    scaled = [None if s is None else s * scale for s in scores]
    if all(s is None or s == 0 or s > 1e-200 for s in scores):
        assert weigh_turns(scaled, tokens, advantage) == pytest.approx(weigh_turns(scores, tokens, advantage))


ANSWERED = RolloutFacts((TurnFacts(), TurnFacts(submission=("a.py",))), GOLD)
UNANSWERED = RolloutFacts((TurnFacts(), TurnFacts()), GOLD)


def test_who_is_scored() -> None:
    def scorer(trajectory: RolloutFacts) -> TurnScores:
        return [0.5, None]

    assert TurnScoring().scores(ANSWERED) == (None, "off")
    assert TurnScoring(scorer).scores(ANSWERED) == ([0.5, None], "weighted")
    assert TurnScoring(scorer).scores(UNANSWERED) == (None, "ineligible")
    assert TurnScoring(scorer, only_answered=False).scores(UNANSWERED) == ([0.5, None], "weighted")


@pytest.mark.parametrize("given", [None, [0.5], [0.5, 2.0], [0.5, math.nan], [0.5, -0.1]])
def test_scores_that_cannot_be_used_are_said(given: TurnScores | None) -> None:
    assert TurnScoring(lambda _: given).scores(ANSWERED) == (None, "invalid")
