"""Thoughts and typographic marks in text of models and people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.text import plain, without_thoughts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<think>no</think>yes", "yes"),
        ("no\n</think>\n\nyes", "\n\nyes"),
        ("no <think>still no</think> no </think>yes", "yes"),
        ("a<think>no</think>b<think>no</THINK>c", "abc"),
        ("<think>no <think>no</think>yes", "yes"),
        ("yes<think>cut off", "yes"),
        ("<think>cut off", ""),
        ("yes", "yes"),
    ],
)
def test_what_was_said(text: str, said: str) -> None:
    assert without_thoughts(text) == said


def test_marks_inside_opaque_parts_are_text() -> None:
    assert without_thoughts("no</think>a '</think>' b", [(12, 22)]) == "a '</think>' b"


@given(st.lists(st.sampled_from(["</think>", "x", "\n"]), max_size=9).map("".join))
def test_a_thought_may_begin_in_the_prompt(text: str) -> None:
    # A server that opens the thought in the prompt returns the same text without its first mark.
    assert without_thoughts(f"<think>{text}</think>said") == without_thoughts(f"{text}</think>said")


def test_typographic_marks_become_ascii() -> None:
    assert plain("It isn\u2019t \u201cright\u201d,\u00a0off\u2011topic\u200b") == 'It isn\'t "right", off-topic'
