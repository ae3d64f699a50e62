"""SFT turn weights of colgrep, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.rewards.turn_credit import CallFacts, RolloutFacts, TurnFacts, outcome_credit


def turn(*calls: CallFacts, submission: tuple[str, ...] | None = None) -> TurnFacts:
    return TurnFacts(calls, submission)


def call(key: str, *paths: str, ok: bool = True) -> CallFacts:
    return CallFacts(key, paths, ok)


def credit(turns: Sequence[TurnFacts], gold: Sequence[str], **weights: float) -> list[float]:
    return outcome_credit(RolloutFacts(tuple(turns), frozenset(gold)), **weights)


GOLD = ("a", "b")


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([turn(call("1", "a", "x"))], [1.0]),  # new gold beside others
        ([turn(call("1", "a")), turn(call("2", "a", "x"))], [1.0, 0.6]),  # seen gold
        ([turn(call("1", "a")), turn(call("2", "a", "b"))], [1.0, 1.0]),  # seen and new: new
        ([turn(call("1", "x"))], [0.3]),
        ([turn(call("1"))], [0.05]),
        ([turn(call("1", "a", ok=False))], [0.05]),
        ([turn(call("1", "a", ok=False)), turn(call("2", "a"))], [0.05, 1.0]),  # a failed call finds nothing
        ([turn(call("1", "a")), turn(call("1", "a"))], [1.0, 0.05]),  # repeated
        ([turn(call("1", "x"), call("1", "x"))], [0.3]),  # repeated within the turn, the first one counts
        ([turn(call("1"), call("2", "x"), call("3", "b"))], [1.0]),  # best call of the turn
        ([turn(call("1", "a"), call("2", "a"))], [1.0]),  # calls of one turn run at once
        ([turn()], [0.05]),  # neither call nor answer
        ([turn(submission=("a",))], [0.5]),
        ([turn(submission=("b", "a", "x"))], [1.0]),
        ([turn(submission=("x",))], [0.0]),
        ([turn(submission=())], [0.0]),
        ([turn(call("1", "a"), submission=("x",))], [0.0]),  # the finish turn, whatever its calls found
        ([], []),
    ],
)
def test_rules(turns: list[TurnFacts], expected: list[float]) -> None:
    assert credit(turns, GOLD) == expected


def test_without_gold() -> None:
    assert credit([turn(call("1", "a")), turn(submission=())], ()) == [0.3, 1.0]
    assert credit([turn(submission=("a",))], ()) == [0.0]


def test_own_weights() -> None:
    turns = [turn(call("1", "a")), turn(call("2", "a")), turn(call("3", "x")), turn(call("4"))]
    own = {"new_gold": 2.0, "seen_gold": 1.5, "no_gold": 0.0, "empty": 0.1}
    assert credit(turns, GOLD, **own) == [2.0, 1.5, 0.0, 0.1]


calls = st.builds(
    CallFacts, st.sampled_from("123"), st.lists(st.sampled_from("abxy"), max_size=3).map(tuple), st.booleans()
)
turns = st.builds(
    TurnFacts,
    st.lists(calls, max_size=3).map(tuple),
    st.one_of(st.none(), st.lists(st.sampled_from("abx"), unique=True).map(tuple)),
)


@given(st.lists(turns, max_size=5))
def test_weights_are_bounded_and_never_look_ahead(trajectory: list[TurnFacts]) -> None:
    weights = credit(trajectory, GOLD)
    assert all(0.0 <= weight <= 1.0 for weight in weights)
    for end in range(len(trajectory)):
        assert credit(trajectory[:end], GOLD) == weights[:end]
    # At most one turn for each gold file can be the one that finds something new.
    assert sum(w == 1.0 for w, t in zip(weights, trajectory, strict=True) if t.submission is None) <= len(GOLD)
