"""Prompts, answers, rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.judges.files import NOT_RELEVANT, RELEVANT, Question, majority, parse_answer, prompt
from codegrep.judges.files_rules import RulesJudge


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
        # What only names the word, or doubts it, is no rejection; what says both is none either.
        ("I cannot say it is NOT_RELEVANT, so RELEVANT", (RELEVANT, False)),
        ("I cannot say it is NOT_RELEVANT", (RELEVANT, True)),
        ("I can’t call it NOT_RELEVANT.", (RELEVANT, True)),
        ("It is not NOT_RELEVANT", (RELEVANT, True)),
        ("RELEVANT or NOT_RELEVANT?", (RELEVANT, True)),
        ("Whether it is NOT_RELEVANT is open.", (RELEVANT, True)),
        ("NOT_RELEVANT. Wait: RELEVANT.", (RELEVANT, True)),
        ("NOT_RELEVANT\nRELEVANT", (RELEVANT, True)),
        # A rejection in words around it stays one.
        ("The file does not matter, so NOT_RELEVANT", (NOT_RELEVANT, False)),
        ("The file does not matter so it is NOT_RELEVANT", (NOT_RELEVANT, False)),
        ("The question is: RELEVANT or NOT_RELEVANT?\n\nNOT_RELEVANT", (NOT_RELEVANT, False)),
        ("The file is not relevant (the relevant code is elsewhere).", (NOT_RELEVANT, False)),
        ("It holds nothing relevant. **NOT_RELEVANT**", (NOT_RELEVANT, False)),
        ('{"answer": "NOT_RELEVANT"}', (NOT_RELEVANT, False)),
        ("NOT‑RELEVANT – unrelated docs", (NOT_RELEVANT, False)),
        ("not\u00a0relevant", (NOT_RELEVANT, False)),
        ("… I would call it the wrong file.\n</think>\n\nNOT_RELEVANT", (NOT_RELEVANT, False)),
        ("It looks RELEVANT at first.\n</think>\n\nNOT_RELEVANT", (NOT_RELEVANT, False)),
        ("only thoughts\n</think>\n", None),
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
    assert "src/a.py" in text and "The issue." in text and "[… 1024 characters …]" in text
    assert "(not known)" in prompt(Question("a.py", "text"))


def test_votes() -> None:
    assert majority([NOT_RELEVANT, RELEVANT]) == RELEVANT
    assert majority([NOT_RELEVANT, RELEVANT, NOT_RELEVANT]) == NOT_RELEVANT


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
        # Typographic apostrophes, hyphens and spaces, emphasis and wrapped lines are those of plain text.
        ("This file isn’t relevant to the bug.", NOT_RELEVANT),
        ("This isn‘t the right file.", NOT_RELEVANT),
        ("This doesn’t contain anything about caching.", NOT_RELEVANT),
        ("That module is off‑topic.", NOT_RELEVANT),
        ("This file is\u00a0not\u202frelevant here.", NOT_RELEVANT),
        ("This file is **not relevant** to the bug.", NOT_RELEVANT),
        ("This file is not\nrelevant to the bug.", NOT_RELEVANT),
        ("I’m not sure, but this file isn’t relevant.", RELEVANT),
    ],
)
def test_rules_reject_only_what_is_rejected_in_words(text: str, label: str) -> None:
    (verdict,) = RulesJudge().judge([Question("a.py", text)])
    assert verdict.label == label, verdict.reason
