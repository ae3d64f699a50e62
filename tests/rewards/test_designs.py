"""Reward designs and factors against values worked by hand from the papers' formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.issues.issue import Entity, LineRange
from codegrep.rewards.advantage import efficiency, mean_calls, none
from codegrep.rewards.calls import calls_per_turn, excess_discount, parallelism_share
from codegrep.rewards.designs import codescout, colgrep, swe_grep, tiered, v1, v2, v3
from codegrep.rewards.governance import Conduct
from codegrep.rewards.needs import needs
from codegrep.rewards.outcome import Outcome, RewardDesign, RewardParts
from codegrep.rewards.signal import TrainingSignal, score_rollout

DESIGNS: list[RewardDesign] = [v1, v2, v3, swe_grep, tiered]

CLASS, METHOD, FUNCTION = (
    Entity("a.py", "A", "class"),
    Entity("a.py", "A.go", "function"),
    Entity("a.py", "run", "function"),
)
entities = st.sampled_from(
    [CLASS, METHOD, FUNCTION, Entity("b.py", "B", "class"), Entity("a.py", "A.stop", "function")]
)
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
    predicted_entities=st.lists(entities, max_size=4, unique=True).map(tuple),
    gold_entities=st.none() | st.frozensets(entities, max_size=4),
    judgement=st.none() | st.booleans(),
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
    assert swe_grep(rollout(malformed_answers=1)).total == 0
    assert swe_grep(rollout(answered=False)).total == 0
    assert swe_grep(rollout(calls_per_turn=(0,))).total > 0  # the post has no search mask


def test_parts_name_every_term() -> None:
    assert dict(v1(rollout()).parts) == pytest.approx(
        {"file_f": 5 / 9, "line_f": 1, "discount": 1, "precision": 0.5, "recall": 1}
    )
    assert set(v2(rollout()).parts) == {"file_f", "line_f", "searched", "precision", "recall"}
    assert set(v3(rollout()).parts) == {"file_f", "searched", "precision", "recall"}
    assert set(swe_grep(rollout()).parts) == {"file_f", "line_f", "well_formed", "precision", "recall"}


def test_machine_failures_have_no_reward() -> None:
    def scored(outcome: Outcome) -> RewardParts | None:
        return score_rollout(outcome, Conduct(outcome.exit_cause, outcome.calls_per_turn), TrainingSignal(v3)).reward

    assert scored(rollout(exit_cause="infrastructure")) is None
    assert scored(rollout(exit_cause="max_tokens", predicted=(), answered=False)) == v3(rollout(predicted=()))


def test_a_reward_that_is_no_number_is_not_passed_on() -> None:
    with pytest.raises(ValueError, match="nan"):
        score_rollout(rollout(), Conduct("answer", (1,)), TrainingSignal(lambda outcome: RewardParts(math.nan)))


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


# F1 of one right file in two answered, one gold: 2/3. F2 of it: 5·(1/2·1)/(4·1/2 + 1) = 5/6.
@pytest.mark.parametrize(
    ("changes", "params", "expected"),
    [
        ({"calls_per_turn": (4, 0)}, {}, 2 / 3),  # T = 2 is free
        ({"calls_per_turn": (4, 4, 0)}, {}, 2 / 3 * 0.99),
        ({"calls_per_turn": (4,) * 9 + (0,)}, {}, 2 / 3 * 0.92),  # 8 turns too many: the cap of 0.08
        ({"calls_per_turn": (4,) * 19 + (0,)}, {}, 2 / 3 * 0.92),
        ({"calls_per_turn": (4, 0)}, {"task": "f2"}, 5 / 6),
        ({"calls_per_turn": (0, 0)}, {}, 2 / 3 - 0.5),  # no search
        ({"calls_per_turn": (4, 0), "answered": False, "predicted": ()}, {}, -0.5),
        ({"calls_per_turn": (0,), "answered": False, "predicted": ()}, {"penalty": 0.2}, -0.2),
        ({"calls_per_turn": (4, 4, 0)}, {"turn_cost": 0.0}, 2 / 3),
        ({"calls_per_turn": (4, 0)}, {"task": "entities"}, 2 / 3),  # not known: the file score alone
    ],
)
def test_colgrep_by_hand(changes: dict[str, object], params: dict[str, object], expected: float) -> None:
    assert colgrep(rollout(**changes), **params).total == pytest.approx(expected)  # type: ignore[arg-type]


def test_colgrep_with_entities_by_hand() -> None:
    known = {"calls_per_turn": (4, 0), "gold_entities": frozenset({CLASS, METHOD, FUNCTION})}
    # Answered A.go: class A through it (1 of 1), functions 1 of 2: F1 = 2/3.
    reward = colgrep(rollout(**known, predicted_entities=(METHOD,)), task="entities")
    assert dict(reward.parts) | {} == pytest.approx(
        {"file_f": 2 / 3, "class_f": 1, "function_f": 2 / 3, "turn_discount": 1, "format": 0}
        | {"precision": 0.5, "recall": 1}
    )
    assert reward.total == pytest.approx(2 / 3 + 1 + 2 / 3)
    assert colgrep(rollout(**known), task="entities").total == pytest.approx(2 / 3)
    nothing_touched = rollout(calls_per_turn=(4, 0), gold_entities=frozenset())
    assert colgrep(nothing_touched, task="entities").total == pytest.approx(2 / 3 + 2)  # both empty is 1


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="task"):
        colgrep(rollout(), task="f3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="check"):
        tiered(rollout(), check="found")  # type: ignore[arg-type]


def test_codescout_by_hand() -> None:
    gold = frozenset({CLASS, METHOD, FUNCTION})
    # Modules: {A} of {A, run}: F1 = 2/3. Entities: {A.go} of three: 2·1/(1 + 3) = 1/2.
    outcome = rollout(gold_entities=gold, predicted_entities=(METHOD,))
    assert codescout(outcome).total == pytest.approx(2 / 3 + 2 / 3 + 1 / 2)
    assert codescout(rollout()).total == pytest.approx(2 / 3)
    assert codescout(rollout(gold_entities=frozenset())).total == pytest.approx(2 / 3)  # empty truth: 0
    assert codescout(rollout(gold_entities=frozenset()), empty_is_zero=False).total == pytest.approx(2 / 3 + 2)
    assert codescout(rollout(gold=frozenset(), predicted=())).total == 0
    assert codescout(rollout(calls_per_turn=(1, 1, 1, 0)), bonus=1.0).total == pytest.approx(2 / 3 + 1)
    assert codescout(rollout(calls_per_turn=(1, 1, 0)), bonus=1.0).total == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("changes", "params", "expected"),
    [
        ({"judgement": True}, {}, 1.0),
        ({"judgement": False}, {}, 0.5),
        ({"judgement": None}, {}, 0.5),  # the judge failed or was not asked
        ({"judgement": True, "predicted": ("b.py",)}, {}, 0.0),  # never judged: the check failed
        ({"judgement": True, "predicted": ("b.py",)}, {"check": "answered"}, 1.0),
        ({"predicted": (), "answered": False}, {"check": "answered"}, 0.0),
        ({}, {"judge": "score"}, 0.5),  # F0.5 = 0.5556
        ({"predicted": ("a.py",)}, {"judge": "score"}, 1.0),
        ({}, {"judge": "score", "threshold": 0.5}, 1.0),
        ({"gold": frozenset(), "predicted": ()}, {"judge": "score"}, 1.0),
    ],
)
def test_tiered_by_hand(changes: dict[str, object], params: dict[str, object], expected: float) -> None:
    assert tiered(rollout(**changes), **params).total == expected  # type: ignore[arg-type]


@given(outcomes)
def test_bounds_of_the_sums(outcome: Outcome) -> None:
    assert -0.5 <= colgrep(outcome).total <= 1.0
    assert -0.5 <= colgrep(outcome, task="entities").total <= 3.0 + 1e-9
    assert 0.0 <= codescout(outcome).total <= 3.0 + 1e-9
    assert tiered(outcome).total in (0.0, 0.5, 1.0)
    assert 0.0 <= mean_calls(outcome) <= 1.0


@given(st.integers(0, 30), st.integers(0, 30))
def test_turn_discount_never_rises(one: int, other: int) -> None:
    low, high = sorted((one, other))
    shares = [colgrep(rollout(calls_per_turn=(1,) * turns)).parts["turn_discount"] for turns in (high, low)]
    assert 0.92 <= shares[0] <= shares[1] <= 1.0


def test_mean_calls_factor() -> None:
    assert mean_calls(rollout(calls_per_turn=(8, 8, 0))) == 1
    assert mean_calls(rollout(calls_per_turn=(2, 0))) == 0.25
    assert mean_calls(rollout(calls_per_turn=(0,))) == 0
    assert mean_calls(rollout(calls_per_turn=(2, 0)), most=2.0) == 1
    with pytest.raises(ValueError, match="positive"):
        mean_calls(rollout(), most=0.0)


def test_what_designs_need() -> None:
    assert needs(v1) == needs(v2) == {"line_ranges"} and needs(swe_grep) == {"line_ranges", "form"}
    assert needs(v3) == needs(colgrep) == frozenset()
    assert needs(codescout) == {"entities"}
    assert needs(lambda outcome: colgrep(outcome, task="entities")) == {"entities"}
    assert needs(tiered) == {"judgement"}
    assert needs(lambda outcome: tiered(outcome, judge="score")) == frozenset()


@given(outcomes, st.randoms(use_true_random=False))
def test_no_new_design_sees_the_order_of_files_or_names(outcome: Outcome, order: object) -> None:
    files, names = list(outcome.predicted), list(outcome.predicted_entities)
    order.shuffle(files)  # type: ignore[attr-defined]
    order.shuffle(names)  # type: ignore[attr-defined]
    shuffled = replace(outcome, predicted=tuple(files), predicted_entities=tuple(names))
    for design in (colgrep, codescout, tiered):
        assert design(shuffled) == design(outcome)
    assert colgrep(shuffled, task="entities") == colgrep(outcome, task="entities")


@given(outcomes)
def test_a_right_file_more_never_lowers_a_task_score(outcome: Outcome) -> None:
    missing = sorted(outcome.gold - set(outcome.predicted))
    if missing:
        better = replace(outcome, predicted=(*outcome.predicted, missing[0]))
        assert colgrep(better).total >= colgrep(outcome).total - 1e-12
        assert v3(better).total >= v3(outcome).total - 1e-12
