"""The scripted teacher searches by the issue text alone; only its answer looks at gold, and only at what was shown."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from codegrep.config import TeacherConfig
from codegrep.issues import Issue
from codegrep.issues.issue import Entity, LineRange
from codegrep.protocol import FileMatches, ToolCall, ToolResult, ToolStatus
from codegrep.protocol.observation import Observation, render
from codegrep.protocol.parse import parse_message
from codegrep.rollout.policy import TurnState
from codegrep.rollout.teacher import (
    ScriptedSearch,
    Teacher,
    first_row,
    gold_met,
    gold_shown,
    shown_so_far,
)
from tests.protocol.test_observation import TABLE, TOOLS
from tests.protocol.test_shown import read

CONFIG = TeacherConfig(greps=3, globs=1, reads=2, read_lines=5, read_margin=0.5, max_answer_files=2)
ISSUE = Issue(
    "acme__shop-1",
    "acme/shop",
    "a" * 40,
    "Wrong totals\n`compute_total` in shop/cart.py ignores `DiscountRule` and apply_tax, round_up",
    gold_files=("shop/cart.py", "shop/tax.py"),
)


def grep(number: int, pattern: str, *files: FileMatches, shown: int | None = None) -> ToolResult:
    text = "\n".join(f"{f.path}:{f.line}:{f.text}" for f in files[:shown]) or "[no matching lines]"
    return ToolResult(number, ToolCall("grep", {"pattern": pattern}), ToolStatus.OK, text, files)


RESULTS = (
    grep(
        1, "compute_total", FileMatches("shop/cart.py", 4, 10, "def compute_total(items):"), FileMatches("a.py", 1, 5)
    ),
    grep(
        2, "DiscountRule", FileMatches("shop/rules.py", 3, 7, "class DiscountRule:"), FileMatches("shop/cart.py", 1, 9)
    ),
)
FOUND = render(RESULTS, TOOLS)
NOTHING = render([grep(1, "compute_total")], TOOLS)


def state_of(*observations: Observation, issue: Issue = ISSUE, answer_turn: bool = True) -> TurnState:
    messages = [("user", issue.problem_statement), *(("user", observation.text) for observation in observations)]
    return TurnState(issue, len(observations), answer_turn, observations, (), 500, tuple(messages))


def answered(teacher: Teacher, state: TurnState) -> dict[str, object]:
    text = asyncio.run(teacher.write(state))
    assert parse_message(text).answer is not None
    return dict(json.loads(text.removeprefix("<answer>").removesuffix("</answer>")))


def test_the_search_does_not_depend_on_the_gold_files() -> None:
    other = replace(ISSUE, gold_files=("somewhere/else.py",), patch="diff")
    search = ScriptedSearch(CONFIG, 8, TOOLS.names)
    assert search.calls(ISSUE, []) == search.calls(other, [])
    assert search.calls(ISSUE, [FOUND]) == search.calls(other, [FOUND])


def test_first_turn_globs_paths_and_greps_names() -> None:
    calls = ScriptedSearch(CONFIG, 8, TOOLS.names).calls(ISSUE, [])
    assert calls[0] == ToolCall("glob", {"pattern": "**/cart.py"})
    assert [c.name for c in calls] == ["glob", "grep", "grep", "grep"]
    assert {"compute_total", "DiscountRule"} <= {str(c.arguments["pattern"]) for c in calls}
    assert len(ScriptedSearch(CONFIG, 2, TOOLS.names).calls(ISSUE, [])) == 2


def test_it_searches_for_the_title_where_it_has_the_tool() -> None:
    title = ToolCall("search", {"query": "Wrong totals"})
    both = ScriptedSearch(CONFIG, 8, ["search", "grep", "glob", "read"])
    assert both.calls(ISSUE, []) == [title, *ScriptedSearch(CONFIG, 8, TOOLS.names).calls(ISSUE, [])]
    alone = ScriptedSearch(CONFIG, 8, ["search"], always_reads=True)
    assert alone.calls(ISSUE, []) == [title] == both.calls(ISSUE, [])[:1]
    assert alone.calls(ISSUE, [FOUND]) == []  # it cannot read
    (again,) = alone.calls(ISSUE, [NOTHING])
    assert again.name == "search" and "compute_total" in again.arguments["query"]
    assert alone.calls(ISSUE, [NOTHING, NOTHING]) == []
    assert "search" not in {call.name for call in both.calls(replace(ISSUE, problem_statement=" \n"), [])}


def test_it_reads_when_the_ranking_is_close_and_then_stops() -> None:
    search = ScriptedSearch(CONFIG, 8, TOOLS.names)
    reads = search.calls(ISSUE, [FOUND])
    assert [c.name for c in reads] == ["read", "read"]
    assert reads[0].arguments["path"] == "shop/cart.py"
    assert reads[0].arguments["start"] == 8  # two lines before the line that was shown
    assert reads[0].arguments["end"] - reads[0].arguments["start"] == CONFIG.read_lines - 1
    read = render([ToolResult(n, c, ToolStatus.OK, "") for n, c in enumerate(reads, 1)], TOOLS)
    assert search.calls(ISSUE, [FOUND, read]) == []
    clear = ScriptedSearch(replace(CONFIG, read_margin=1.01), 8, TOOLS.names)
    assert clear.calls(ISSUE, [FOUND]) == []
    assert (
        ScriptedSearch(replace(CONFIG, read_margin=1.01), 8, TOOLS.names, always_reads=True).calls(ISSUE, [FOUND])
        == reads
    )


def test_it_reads_only_what_was_shown_at_a_line_that_was_shown() -> None:
    hidden = render([grep(1, "x", FileMatches("a.py", 1, 50, "x"), FileMatches("b.py", 9, 70, "x"), shown=1)], TOOLS)
    reads = ScriptedSearch(CONFIG, 8, TOOLS.names, always_reads=True).calls(ISSUE, [hidden])
    assert [call.arguments for call in reads] == [{"path": "a.py", "start": 48, "end": 52}]


def test_when_nothing_is_shown_it_searches_once_more_with_other_terms() -> None:
    search = ScriptedSearch(CONFIG, 8, TOOLS.names)
    again = search.calls(ISSUE, [NOTHING])
    assert again
    assert not {str(c.arguments["pattern"]) for c in again} & {
        str(c.arguments["pattern"]) for c in search.calls(ISSUE, [])
    }
    assert search.calls(ISSUE, [NOTHING, NOTHING]) == []


def test_the_answer_holds_only_gold_files_that_were_shown() -> None:
    assert gold_shown(ISSUE, [FOUND]) == ["shop/cart.py"]
    assert gold_shown(ISSUE, []) == []
    assert first_row([FOUND]) == ["shop/cart.py"]
    assert [file.path for file in shown_so_far([FOUND])] == ["shop/cart.py", "a.py", "shop/rules.py"]
    cut = render(
        [grep(1, "total", *(FileMatches(p, 1, 3, "x") for p in ("a.py", "b.py", "shop/cart.py")), shown=2)], TOOLS
    )
    assert gold_shown(ISSUE, [cut]) == []
    assert gold_met(ISSUE, [cut]) == ["shop/cart.py"]
    assert first_row([cut]) == ["a.py"]


def test_first_row_is_the_first_row_of_the_table() -> None:
    shuffled = render(RESULTS, replace(TABLE, table_order="path"))
    assert shuffled.text.startswith("a.py:5")
    assert first_row([shuffled]) == ["a.py"]


def test_its_turns_are_readable_by_the_parser() -> None:
    teacher = Teacher(CONFIG, 8, TOOLS.names)
    first = parse_message(asyncio.run(teacher.write(state_of(answer_turn=False))))
    assert list(first.calls) == ScriptedSearch(CONFIG, 8, TOOLS.names).calls(ISSUE, [])
    assert answered(teacher, state_of(FOUND)) == {"files": ["shop/cart.py"]}
    assert teacher.observations == (FOUND,)


def test_line_ranges_are_the_shown_part_of_the_gold_hunks() -> None:
    gold = (LineRange("shop/cart.py", 9, 14), LineRange("shop/cart.py", 40, 41), LineRange("shop/tax.py", 1, 2))
    seen = render([read(1, "shop/cart.py", 8, *"abcde")], TOOLS)  # lines 8 to 12
    answer = answered(
        Teacher(CONFIG, 8, TOOLS.names, "detailed"), state_of(FOUND, seen, issue=replace(ISSUE, gold_ranges=gold))
    )
    assert answer == {"files": ["shop/cart.py"], "line_ranges": [["shop/cart.py", 9, 12]]}
    # Nothing of a hunk was shown: the form is kept, no range is invented.
    unseen = answered(
        Teacher(CONFIG, 8, TOOLS.names, "detailed"), state_of(FOUND, issue=replace(ISSUE, gold_ranges=gold[1:]))
    )
    assert unseen == {"files": ["shop/cart.py"], "line_ranges": []}


def test_entities_are_those_whose_names_the_model_has_read() -> None:
    entities = (
        Entity("shop/cart.py", "Cart.compute_total", "function"),  # "Cart" stands nowhere
        Entity("shop/cart.py", "compute_total", "function"),
        Entity("shop/rules.py", "DiscountRule", "class"),  # not in an answered file
    )
    answer = answered(
        Teacher(CONFIG, 8, TOOLS.names, "entities"), state_of(FOUND, issue=replace(ISSUE, gold_entities=entities))
    )
    assert answer == {"files": ["shop/cart.py"], "entities": ["shop/cart.py:compute_total"]}


names = st.sampled_from(["a.py", "pkg/b.py", "pkg/data.py", "pkg/a.py", "tests/c.py", "shop/cart.py", "shop/tax.py"])
found = st.lists(st.builds(FileMatches, names, st.integers(1, 9), st.integers(1, 300), st.just("x = y")), max_size=12)
turns = st.lists(
    st.lists(st.builds(lambda files, n: grep(1, "x", *files, shown=n), found, st.integers(1, 6)), max_size=4),
    max_size=3,
)


@given(turns, st.sampled_from([TOOLS, TABLE]), st.sampled_from([0, 300, 700]), st.integers(1, 4))
def test_whatever_the_teacher_names_was_shown(said: list[list[ToolResult]], style: object, cap: int, rows: int) -> None:
    assert style in (TOOLS, TABLE)
    tools = replace(TOOLS if style == TOOLS else TABLE, max_observation_chars=cap, table_rows=rows)
    observations = [render([replace(r, number=n) for n, r in enumerate(results, 1)], tools) for results in said]
    ranges = tuple(LineRange(path, start, start + 30) for path in ISSUE.gold_files for start in (1, 100))
    state = state_of(*observations, issue=replace(ISSUE, gold_ranges=ranges))
    text = "".join(observation.text for observation in observations)
    for call in ScriptedSearch(CONFIG, 8, TOOLS.names, always_reads=True).calls(ISSUE, observations):
        if call.name == "read":
            assert str(call.arguments["path"]) in text
    answer = parse_message(asyncio.run(Teacher(CONFIG, 8, TOOLS.names, "detailed").write(state))).answer
    assert answer is not None
    assert all(path in text for path in answer.files)
    numbers = set(re.findall(r"\d+", text))
    assert all({str(span.start), str(span.end)} <= numbers for span in answer.ranges)
