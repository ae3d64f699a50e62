"""Prompts, answers, rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.endpoint import content_key
from codegrep.labels.candidates import NOT_RELEVANT, RELEVANT
from codegrep.labels.judging import Question, majority, parse_answer, prompt
from codegrep.labels.rules import RulesJudge


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("RELEVANT", (RELEVANT, False)),
        ("NOT_RELEVANT", (NOT_RELEVANT, False)),
        ("Not relevant.", (NOT_RELEVANT, False)),
        ("irrelevant", (NOT_RELEVANT, False)),
        ("<think>NOT_RELEVANT?</think>\nRELEVANT", (RELEVANT, False)),
        ("Answer: NOT RELEVANT, since RELEVANT files are elsewhere", (NOT_RELEVANT, False)),
        ("RELEVANT, though one could say NOT_RELEVANT", (RELEVANT, False)),
        ("I cannot say", (RELEVANT, True)),
        ("", None),
        ("<think>so long that it never ended", None),
    ],
)
def test_answers(text: str, answer: tuple[str, bool] | None) -> None:
    assert parse_answer(text) == answer


@given(st.text())
def test_any_answer_can_be_read(text: str) -> None:
    found = parse_answer(text)
    assert found is None or found[0] in (RELEVANT, NOT_RELEVANT)


def test_the_prompt_holds_what_it_should_and_shows_its_cuts() -> None:
    text = prompt(Question("src/a.py", "x" * 9000, "The issue."))
    assert "src/a.py" in text and "The issue." in text and "[… 1000 characters …]" in text
    assert "(not known)" in prompt(Question("a.py", "text"))


def test_votes_and_keys() -> None:
    assert majority([NOT_RELEVANT, RELEVANT]) == RELEVANT
    assert majority([NOT_RELEVANT, RELEVANT, NOT_RELEVANT]) == NOT_RELEVANT
    assert content_key(["m"], "text") != content_key(["m"], "text", 1) != content_key(["n"], "text", 1)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("This file is unrelated to the issue.", NOT_RELEVANT),
        ("That module isn't relevant here, so I will look at the parser.", NOT_RELEVANT),
        ("This doesn't contain anything about caching. Let me search further.", NOT_RELEVANT),
        ("This is not the right file.", NOT_RELEVANT),
        ("There is nothing useful here.", NOT_RELEVANT),
        ("I see the issue now. The cache is never cleared.", RELEVANT),
        ("Let's keep searching for the handler.", RELEVANT),
        ("The value is not set when the key is missing.", RELEVANT),
        ("The issue is not related to only this line but to the whole loop.", RELEVANT),
        ("The failing test is unrelated to my change.", RELEVANT),
        ("Maybe this is the wrong file.", RELEVANT),
        ("If this file is unrelated, the handler must be elsewhere.", RELEVANT),
        ("`core/cache.py` is not relevant. The handler is in core/views.py.", NOT_RELEVANT),
        ("This file is unrelated. But I see the issue now: it is imported.", RELEVANT),
        ("It seems unrelated at first, but I see the problem: the key is wrong.", RELEVANT),
        ("", RELEVANT),
    ],
)
def test_rules_reject_only_what_is_rejected_in_words(text: str, label: str) -> None:
    (verdict,) = RulesJudge().judge([Question("a.py", text)])
    assert verdict.label == label, verdict.reason
