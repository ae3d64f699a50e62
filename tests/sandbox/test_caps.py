"""No text is longer than its cap, the notes about what was cut included."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegrep.judges.endpoint import shortened
from codegrep.protocol.calls import MalformedCall, ToolCall
from codegrep.protocol.prompt import user_prompt
from codegrep.sandbox import Toolbox
from codegrep.sandbox.sandbox import Sandbox
from codegrep.sandbox.tools.formatting import fit, shown_line
from codegrep.text import around
from tests.sandbox.trees import tool_limits

TEXTS = st.text(st.sampled_from("ab é\n\r\t\x1b.*/"), max_size=300)
CAPS = st.integers(1, 320)


@given(TEXTS, CAPS, st.integers(0, 299))
def test_parts_of_a_line(text: str, cap: int, at: int) -> None:
    line = shown_line(text, cap, at)
    assert len(line) <= cap and "\n" not in line
    part, place = around(text, at, cap)
    assert len(part) <= cap and (part == text or cap < 8 or "…" in part)
    if at < len(text):
        assert part[place] == text[at]


@given(TEXTS, CAPS)
def test_statements_and_what_judges_read(text: str, cap: int) -> None:
    assert len(shortened(text, cap)) <= cap
    assert len(user_prompt("o/n", text, cap)) <= cap + len("Repository: o/n\nIssue: ")
    assert user_prompt("o/n", text, 0) == f"Repository: o/n\nIssue: {text.strip()}"


@given(st.lists(TEXTS, max_size=20), CAPS)
def test_whole_lines(lines: list[str], cap: int) -> None:
    text, shown = fit(lines, cap, lambda count: "" if count == len(lines) else f"[first {count} of {len(lines)}]")
    assert len(text) <= cap and shown <= len(lines)


WORDS = st.sampled_from(["", "needle", "n.*", "(", "src", "nowhere", "../x", "*", "{a", "src/**", "x" * 900, "1", "9"])
ARGUMENTS = st.dictionaries(
    st.sampled_from(["pattern", "path", "include", "start", "end", "ignore_case", "y" * 400]),
    st.one_of(WORDS, st.integers(-1, 5), st.booleans(), st.lists(WORDS)),
    max_size=4,
)
CALLS = st.builds(ToolCall, st.sampled_from(["grep", "glob", "read", "nothing", "z" * 500]), ARGUMENTS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caps") / "tree"
    (folder / "src").mkdir(parents=True)
    for number in range(30):
        (folder / "src" / f"file{number}.py").write_text("needle " * 100 + "\n" + "needle\n" * 20)
    return folder


@settings(max_examples=60, deadline=None)
@given(call=CALLS, cap=CAPS)
def test_results_of_calls(root: Path, call: ToolCall, cap: int) -> None:
    box = Toolbox(tool_limits(max_chars=cap, max_line_chars=min(cap, 80)))
    assert 0 < len(asyncio.run(box.run(root, call, 1)).text) <= cap


@given(st.text(max_size=200), CAPS)
def test_calls_that_are_not_executed(reason: str, cap: int) -> None:
    limits = tool_limits(max_chars=cap, max_calls=1)
    box: Any = Sandbox(None, Toolbox(limits))  # type: ignore[arg-type]
    results = asyncio.run(box.run_turn("o/n", "0" * 40, [MalformedCall("", reason), MalformedCall("", reason)]))
    assert [0 < len(result.text) <= cap for result in results] == [True, True]
