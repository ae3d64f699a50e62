"""The gold-free turn scorer, rule by rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.issues.issue import LineRange
from codegrep.rewards.information import information_gain
from codegrep.rewards.turn_credit import CallFacts, RolloutFacts, TurnFacts

GOLD = frozenset({"a", "b"})


def call(key: str, *paths: str, ok: bool = True, reads: tuple[int, int] | None = None) -> CallFacts:
    return CallFacts(key, paths, ok, () if reads is None else (LineRange(paths[0], *reads),))


def turn(*calls: CallFacts, submission: tuple[str, ...] | None = None) -> TurnFacts:
    return TurnFacts(calls, submission)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([turn(call("1", "x"))], [1.0]),
        ([turn(call("1", "x")), turn(call("2", "x"))], [1.0, 0.3]),  # another search, the same file
        ([turn(call("1", "x")), turn(call("2", "x", "y"))], [1.0, 1.0]),
        ([turn(call("1", "x")), turn(call("1", "x"))], [1.0, 0.05]),  # the same search
        ([turn(call("1", "x"), call("2", "x"))], [1.0]),  # calls of one turn run at once
        ([turn(call("1"))], [0.05]),
        ([turn(call("1", "x", ok=False))], [0.05]),
        ([turn(call("1", "x", ok=False)), turn(call("1", "x"))], [0.05, 0.05]),  # a failed call made again
        ([turn(call("1", "x", ok=False)), turn(call("2", "x"))], [0.05, 1.0]),
        ([turn()], [0.05]),
        # Reading a file that a search has named is new; reading the same lines again is not.
        ([turn(call("1", "x")), turn(call("r", "x", reads=(1, 40)))], [1.0, 1.0]),
        (
            [turn(call("r", "x", reads=(1, 40))), turn(call("s", "x", reads=(5, 20))), turn(call("t", "x"))],
            [1.0, 0.3, 0.3],
        ),
        # Paging on is new; two pages together cover what is asked for next.
        (
            [
                turn(call("r", "x", reads=(1, 40))),
                turn(call("s", "x", reads=(41, 80))),
                turn(call("t", "x", reads=(30, 60))),
                turn(call("u", "x", reads=(80, 81))),
            ],
            [1.0, 1.0, 0.3, 1.0],
        ),
        ([turn(call("1", "x")), turn(submission=("x",))], [1.0, None]),
        ([], []),
    ],
)
def test_rules(turns: list[TurnFacts], expected: list[float | None]) -> None:
    assert information_gain(RolloutFacts(tuple(turns), GOLD)) == expected


def test_own_values() -> None:
    turns = (turn(call("1", "x")), turn(call("2", "x")), turn(), turn(submission=()))
    assert information_gain(RolloutFacts(turns, GOLD), new=0.9, seen=0.5, nothing=0.0, submission=0.7) == [
        0.9,
        0.5,
        0.0,
        0.7,
    ]


calls = st.builds(
    CallFacts,
    st.sampled_from("1234"),
    st.lists(st.sampled_from("xy"), max_size=2).map(tuple),
    st.booleans(),
    st.lists(st.builds(LineRange, st.sampled_from("xy"), st.integers(1, 9), st.integers(1, 9)), max_size=1).map(tuple),
)
turns = st.builds(
    TurnFacts,
    st.lists(calls, max_size=3).map(tuple),
    st.one_of(st.none(), st.lists(st.sampled_from("xy"), unique=True).map(tuple)),
)


@given(st.lists(turns, max_size=5))
def test_scores_are_bounded_never_look_ahead_and_need_no_gold(made: list[TurnFacts]) -> None:
    scores = information_gain(RolloutFacts(tuple(made), GOLD))
    assert all(score is None or 0.0 <= score <= 1.0 for score in scores)
    assert scores == information_gain(RolloutFacts(tuple(made), frozenset()))
    for end in range(len(made)):
        assert information_gain(RolloutFacts(tuple(made[:end]), GOLD)) == scores[:end]


@given(st.lists(turns, max_size=4), st.randoms())
def test_the_order_of_calls_within_a_turn_does_not_matter(made: list[TurnFacts], random: object) -> None:
    shuffled = []
    for one in made:
        distinct = list({c.key: c for c in one.calls}.values())
        again = list(distinct)
        random.shuffle(again)  # type: ignore[attr-defined]
        shuffled.append((TurnFacts(tuple(distinct), one.submission), TurnFacts(tuple(again), one.submission)))
    first, second = (RolloutFacts(tuple(pair[i] for pair in shuffled), GOLD) for i in (0, 1))
    assert information_gain(first) == information_gain(second)
