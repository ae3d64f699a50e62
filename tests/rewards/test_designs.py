"""Reward designs and factors against values worked by hand from the papers' formulas."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.issues.issue import LineRange
from codegrep.rewards.advantage import efficiency, none
from codegrep.rewards.calls import calls_per_turn, excess_discount, parallelism_share
from codegrep.rewards.designs import swe_grep, v1, v2, v3
from codegrep.rewards.outcome import Outcome, RewardDesign, RewardParts, score

DESIGNS: list[RewardDesign] = [v1, v2, v3, swe_grep]

outcomes = st.builds(
    Outcome,
    predicted=st.lists(st.sampled_from("abcd"), unique=True).map(tuple),
    gold=st.frozensets(st.sampled_from("abcd")),
    predicted_ranges=st.lists(
        st.builds(LineRange, st.sampled_from("ab"), st.integers(1, 9), st.integers(1, 20)), max_size=4
    ).map(tuple),
    gold_ranges=st.lists(
        st.builds(LineRange, st.sampled_from("ab"), st.integers(1, 9), st.integers(9, 20)), max_size=4
    ).map(tuple),
    calls_per_turn=st.lists(st.integers(0, 8), max_size=4).map(tuple),
    answered=st.booleans(),
    malformed_calls=st.integers(0, 2),
)


def rollout(**changes: object) -> Outcome:
    """A rollout with F_file 0.5556 (one hit in two, one gold) and F_line 1."""
    fields: dict[str, object] = {
        "predicted": ("a.py", "b.py"),
        "gold": frozenset({"a.py"}),
        "predicted_ranges": (LineRange("a.py", 1, 9),),
        "gold_ranges": (LineRange("a.py", 2, 3),),
        "calls_per_turn": (4, 4, 0),
    }
    return Outcome(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mean_calls", "expected"), [(0, 0), (0.5, 0.354), (1, 0.5), (2, 0.707), (3, 0.866), (4, 1), (8, 1)]
)
def test_parallelism_share_of_the_paper(mean_calls: float, expected: float) -> None:
    assert parallelism_share(mean_calls) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize(("mean_calls", "expected"), [(0, 1), (1, 1), (4, 1), (6, 2 / 3), (8, 0.5)])
def test_excess_discount_of_the_paper(mean_calls: float, expected: float) -> None:
    assert excess_discount(mean_calls) == pytest.approx(expected)


@pytest.mark.parametrize("function", [parallelism_share, excess_discount])
def test_target_must_be_positive(function: Callable[[float, float], float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        function(1.0, 0.0)


@given(st.floats(0, 8), st.floats(0, 8))
def test_both_are_monotone(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert parallelism_share(low) <= parallelism_share(high)
    assert excess_discount(low) >= excess_discount(high)


def test_mean_calls_and_its_switches() -> None:
    outcome = rollout(calls_per_turn=(8, 8, 8, 0), unique_calls_per_turn=(8, 2, 2, 0))
    assert calls_per_turn(outcome) == 8  # the paper's bound
    assert calls_per_turn(outcome, count_answer_turn=True) == 6  # 24 calls in 4 turns
    assert calls_per_turn(outcome, count_repeated=False) == 4  # 12 calls in 3 turns
    assert calls_per_turn(rollout(calls_per_turn=(0, 3, 0))) == 3  # a turn without a call is not one of T
    assert calls_per_turn(rollout(calls_per_turn=(0, 3, 0)), count_answer_turn=True) == 1
    assert calls_per_turn(rollout(calls_per_turn=(0, 0))) == 0
    assert calls_per_turn(rollout(calls_per_turn=())) == 0
    assert calls_per_turn(rollout(calls_per_turn=()), count_answer_turn=True) == 0


def test_repeats_must_be_known_to_be_left_out() -> None:
    with pytest.raises(ValueError, match="unique_calls_per_turn"):
        calls_per_turn(rollout(), count_repeated=False)


def test_v1_discounts_more_than_four_calls() -> None:
    mean = 0.5 * (5 / 9 + 1)
    assert v1(rollout()).total == pytest.approx(mean)
    assert v1(rollout(calls_per_turn=(8, 8, 0))).total == pytest.approx(mean / 2)
    assert v1(rollout(calls_per_turn=(8, 8, 8, 0)), count_answer_turn=True).total == pytest.approx(mean / 1.5)
    assert v1(rollout(calls_per_turn=(0,))).total == pytest.approx(mean)  # no mask in v1


def test_v2_masks_answers_without_search() -> None:
    assert v2(rollout()).total == pytest.approx(0.5 * (5 / 9 + 1))
    assert v2(rollout(calls_per_turn=(8, 8, 0))).total == pytest.approx(0.5 * (5 / 9 + 1))
    assert v2(rollout(calls_per_turn=(0,))).total == 0


def test_v3_is_the_masked_file_score() -> None:
    assert v3(rollout()).total == pytest.approx(5 / 9)
    assert v3(rollout(predicted=("a.py",))).total == 1
    assert v3(rollout(predicted=("a.py",), calls_per_turn=(0,))).total == 0
    assert v3(rollout(predicted=(), answered=False)).total == 0
    assert v3(rollout(predicted=(), gold=frozenset())).total == 1
    assert v3(rollout(predicted=(), gold=frozenset(), calls_per_turn=(0,))).total == 0
    assert v3(rollout(predicted=("a.py",), gold=frozenset("abc")), beta=1.0).total == 0


def test_swe_grep_gives_nothing_for_malformed() -> None:
    assert swe_grep(rollout()).total == pytest.approx(0.5 * (5 / 9 + 1))
    assert swe_grep(rollout(malformed_calls=1)).total == 0
    assert swe_grep(rollout(malformed_calls=1), malformed_is_zero=False).total == pytest.approx(0.5 * (5 / 9 + 1))
    assert swe_grep(rollout(answered=False)).total == 0
    assert swe_grep(rollout(calls_per_turn=(0,))).total > 0  # the post has no search mask


def test_parts_name_every_term() -> None:
    assert dict(v1(rollout()).parts) == pytest.approx(
        {"file_f": 5 / 9, "line_f": 1, "discount": 1, "precision": 0.5, "recall": 1}
    )
    assert set(v2(rollout()).parts) == {"file_f", "line_f", "searched", "precision", "recall"}
    assert set(v3(rollout()).parts) == {"file_f", "searched", "precision", "recall"}
    assert set(swe_grep(rollout()).parts) == {"file_f", "line_f", "well_formed", "precision", "recall"}


def test_reward_parts_are_read_only_and_travel() -> None:
    reward = v3(rollout())
    with pytest.raises(TypeError):
        reward.parts["file_f"] = 2.0  # type: ignore[index]
    assert pickle.loads(pickle.dumps(reward)) == reward


def test_machine_failures_have_no_reward() -> None:
    assert score(rollout(exit_cause="infrastructure"), v3) is None
    assert score(rollout(exit_cause="max_tokens", predicted=(), answered=False), v3) == v3(rollout(predicted=()))


def test_a_reward_that_is_no_number_is_not_passed_on() -> None:
    with pytest.raises(ValueError, match="nan"):
        score(rollout(), lambda outcome: RewardParts(math.nan))


@given(outcomes)
def test_designs_are_bounded(outcome: Outcome) -> None:
    for design in DESIGNS:
        assert 0.0 <= design(outcome).total <= 1.0
    assert 0.0 <= efficiency(outcome) <= 1.0
    assert none(outcome) == 1.0


@given(outcomes, st.randoms(use_true_random=False))
def test_v3_does_not_see_the_order_of_the_answer(outcome: Outcome, order: object) -> None:
    files = list(outcome.predicted)
    order.shuffle(files)  # type: ignore[attr-defined]
    shuffled = Outcome(tuple(files), outcome.gold, calls_per_turn=outcome.calls_per_turn)
    assert v3(shuffled) == v3(outcome)


def test_efficiency_factor() -> None:
    assert efficiency(rollout(calls_per_turn=(1, 0))) == 0.5
    assert efficiency(rollout(calls_per_turn=(1, 0)), target=1.0) == 1
    assert efficiency(rollout(calls_per_turn=(2, 0)), count_answer_turn=True) == 0.5
    assert efficiency(rollout(calls_per_turn=(0,))) == 0
