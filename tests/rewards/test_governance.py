"""Governance by hand: which cause a rollout is given, and what becomes of it."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.config.governance import Handling
from codegrep.protocol.exit_cause import LOST
from codegrep.rewards.governance import (
    CAUSES,
    EXIT_CAUSES,
    JUDGE_FAILED,
    Conduct,
    MaskDecision,
    Rules,
    govern,
    repeats,
)

PAPER = Rules(
    handling={
        "context_limit": "full_mask",
        "max_tokens": "full_mask",
        "excessive_calls": "last_turn",
        "repetition": "last_turn",
    },
    masked_in_group=True,
    infrastructure_in_group=True,
    max_calls=5,
    repetition_tokens=15,
    repetition_times=30,
)
LEFT_OUT = Rules(handling=PAPER.handling, masked_in_group=False, max_calls=5, repetition_times=30)
LOOP = (7,) * (15 * 31)  # one token over and over: 31 n-grams of 15 tokens that do not overlap


@pytest.mark.parametrize("cause", ["answer", "no_tool_call", "max_turns"])
@pytest.mark.parametrize("rules", [PAPER, LEFT_OUT, Rules()])
def test_valid_ends_are_scored_as_usual(cause: str, rules: Rules) -> None:
    assert govern(Conduct(cause, (5, 2, 0)), rules) == MaskDecision(cause, "normal", (True, True, True), "own")


@pytest.mark.parametrize("cause", ["max_tokens", "context_limit"])
def test_overlong_rollouts_are_masked_whole(cause: str) -> None:
    assert govern(Conduct(cause, (1, 1)), PAPER) == MaskDecision(cause, "full_mask", (False, False), "zero")
    assert govern(Conduct(cause, (1, 1)), LEFT_OUT) == MaskDecision(cause, "full_mask", (False, False), "none")
    assert govern(Conduct(cause, (1, 1)), Rules()) == MaskDecision(cause, "normal", (True, True), "own")


def test_what_the_machine_lost_counts_as_zero_only_where_the_rules_say_so() -> None:
    lost = Conduct("infrastructure", (6, 6), turns=(LOOP, LOOP))
    assert govern(lost, PAPER) == MaskDecision("infrastructure", "full_mask", (False, False), "zero")
    for rules in (LEFT_OUT, Rules(), Rules(masked_in_group=True)):
        assert govern(lost, rules) == MaskDecision("infrastructure", "full_mask", (False, False), "none")


def test_a_prompt_longer_than_the_context_is_never_in_a_group() -> None:
    for rules in (PAPER, LEFT_OUT, Rules(), Rules(masked_in_group=True, infrastructure_in_group=True)):
        assert govern(Conduct("prompt_too_long", ()), rules) == MaskDecision("prompt_too_long", "full_mask", (), "none")
    with pytest.raises(ValueError, match="prompt_too_long: a rollout that is lost can only be full_mask"):
        Rules({"prompt_too_long": "normal"})


def test_degeneration_keeps_the_turn_in_which_it_happened() -> None:
    last = Conduct("no_tool_call", (2, 6))
    assert govern(last, PAPER) == MaskDecision("excessive_calls", "last_turn", (False, True), "zero")
    # It went on: judged as if it had ended in its second turn. In the group also where masked ones are left out.
    for rules in (PAPER, LEFT_OUT):
        went_on = govern(Conduct("answer", (2, 6, 9, 0)), rules)
        assert went_on == MaskDecision("excessive_calls", "last_turn", (False, True, False, False), "zero")
    looping = Conduct("max_tokens", (9, 0), turns=((1, 2), LOOP))
    assert govern(looping, PAPER) == MaskDecision("repetition", "last_turn", (False, True), "zero")


def test_a_repetition_has_to_be_repeated_often_enough() -> None:
    assert repeats(LOOP, 15, 30) and not repeats(LOOP[1:], 15, 30)
    words = tuple(range(20))
    assert repeats(words * 31, 15, 30) and not repeats(words * 30, 15, 30)
    scattered = tuple(token for n in range(31) for token in (*range(15), 100 + n))
    assert repeats(scattered, 15, 30)
    assert not repeats((), 15, 0) and repeats((1, 2), 1, 1) is False and repeats((1, 1), 1, 1)


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 4), st.integers(1, 6))
def test_repeats_is_the_plain_count(tokens: list[int], size: int, times: int) -> None:
    def count(gram: tuple[int, ...]) -> int:
        found, place = 0, 0
        while place + size <= len(tokens):
            here = tuple(tokens[place : place + size]) == gram
            found, place = found + here, place + (size if here else 1)
        return found

    grams = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    assert repeats(tokens, size, times) == any(count(gram) > times for gram in grams)


@given(st.lists(st.integers(0, 1), min_size=12, max_size=80), st.integers(2, 5), st.integers(1, 5))
def test_the_shortest_ngram_decides(tokens: list[int], size: int, times: int) -> None:
    for shorter, longer in pairwise(range(size, size + 4)):
        assert repeats(tokens, shorter, times) or not repeats(tokens, longer, times)


conducts = st.builds(Conduct, st.sampled_from(EXIT_CAUSES), st.lists(st.integers(0, 9), max_size=4).map(tuple))
rules = st.builds(
    Rules,
    st.dictionaries(
        st.sampled_from([c for c in CAUSES if c not in (*LOST, JUDGE_FAILED)]), st.sampled_from(get_args(Handling))
    ),
    st.booleans(),
    st.booleans(),
    st.integers(0, 9),
)


@given(conducts, rules)
def test_mask_and_reward_go_together(conduct: Conduct, rules: Rules) -> None:
    decision = govern(conduct, rules)
    assert len(decision.kept_turns) == len(conduct.calls_per_turn)
    assert (decision.scored_as == "own") is (decision.handling == "normal")
    if decision.handling == "normal":
        assert all(decision.kept_turns)
    elif decision.handling == "last_turn":
        assert sum(decision.kept_turns) == min(1, len(decision.kept_turns)) and decision.scored_as == "zero"
    else:
        assert not any(decision.kept_turns)
        switches = {"infrastructure": rules.infrastructure_in_group, "prompt_too_long": False}
        kept = switches.get(decision.cause, rules.masked_in_group)
        assert decision.scored_as == ("zero" if kept else "none")
    # The machine's failure alone is never scored as bad without being asked for.
    if conduct.exit_cause == "infrastructure" and not rules.infrastructure_in_group:
        assert decision.scored_as == "none"


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"handling": {"max_token": "full_mask"}}, "unknown cause 'max_token'"),
        ({"handling": {"infrastructure": "normal"}}, "can only be full_mask"),
    ],
)
def test_rules_that_make_no_sense_are_refused(changes: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Rules(**changes)


def test_an_unknown_exit_cause_is_no_normal_end() -> None:
    with pytest.raises(ValueError, match="unknown exit cause 'bored'"):
        govern(Conduct("bored", ()), PAPER)


def test_a_missing_judgement_is_the_machines_failure_and_never_a_zero() -> None:
    lost = Conduct("answer", (2, 0), judge_failed=True)
    for rules in (Rules(), Rules(masked_in_group=True, infrastructure_in_group=True)):
        decision = govern(lost, rules)
        assert (decision.cause, decision.handling, decision.scored_as) == (JUDGE_FAILED, "full_mask", "none")
        assert decision.kept_turns == (False, False)
    # The paper's way: what the reward is without the judgement.
    paper = govern(lost, Rules({JUDGE_FAILED: "normal"}))
    assert (paper.cause, paper.handling, paper.scored_as) == ("answer", "normal", "own")


def test_other_ends_go_before_a_missing_judgement() -> None:
    assert govern(Conduct("infrastructure", (), judge_failed=True), Rules()).cause == "infrastructure"
    full = Rules({"max_tokens": "full_mask"}, masked_in_group=True)
    assert govern(Conduct("max_tokens", (1,), judge_failed=True), full).scored_as == "zero"
    many = Rules({"excessive_calls": "last_turn"}, max_calls=3)
    assert govern(Conduct("answer", (4, 0), judge_failed=True), many).cause == "excessive_calls"
    with pytest.raises(ValueError, match="judge_failed: a missing judgement is no fault of a turn"):
        Rules({JUDGE_FAILED: "last_turn"})
