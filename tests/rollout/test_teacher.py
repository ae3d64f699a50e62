"""The scripted teacher searches by the issue text alone; only its answer may look at the gold files."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from codegrep.config import TeacherConfig
from codegrep.issues import Issue
from codegrep.protocol import FileMatches, ToolCall, ToolResult, ToolStatus
from codegrep.protocol.parse import parse_message
from codegrep.rollout.policy import TurnState
from codegrep.rollout.teacher import ScriptedSearch, Teacher, first_row, gold_answer, seen_files

CONFIG = TeacherConfig(greps=3, globs=1, reads=2, read_lines=5, read_margin=0.5, max_answer_files=2)
ISSUE = Issue(
    "acme__shop-1",
    "acme/shop",
    "a" * 40,
    "Wrong totals\n`compute_total` in shop/cart.py ignores `DiscountRule` and apply_tax, round_up",
    gold_files=("shop/cart.py", "shop/tax.py"),
)


def grep(number: int, pattern: str, *files: FileMatches) -> ToolResult:
    return ToolResult(number, ToolCall("grep", {"pattern": pattern}), ToolStatus.OK, "", files)


FOUND = (
    grep(1, "compute_total", FileMatches("shop/cart.py", 4, 10, "def compute_total(items):"), FileMatches("a.py", 1)),
    grep(2, "DiscountRule", FileMatches("shop/rules.py", 3, 7, "class DiscountRule:"), FileMatches("shop/cart.py", 1)),
)


def test_the_search_does_not_depend_on_the_gold_files() -> None:
    other = replace(ISSUE, gold_files=("somewhere/else.py",), patch="diff")
    search = ScriptedSearch(CONFIG, 8)
    assert search.calls(ISSUE, []) == search.calls(other, [])
    assert search.calls(ISSUE, [FOUND]) == search.calls(other, [FOUND])


def test_first_turn_globs_paths_and_greps_names() -> None:
    calls = ScriptedSearch(CONFIG, 8).calls(ISSUE, [])
    assert calls[0] == ToolCall("glob", {"pattern": "**/cart.py"})
    assert [c.name for c in calls] == ["glob", "grep", "grep", "grep"]
    assert {"compute_total", "DiscountRule"} <= {str(c.arguments["pattern"]) for c in calls}
    assert len(ScriptedSearch(CONFIG, 2).calls(ISSUE, [])) == 2


def test_it_reads_when_the_ranking_is_close_and_then_stops() -> None:
    search = ScriptedSearch(CONFIG, 8)
    reads = search.calls(ISSUE, [FOUND])
    assert [c.name for c in reads] == ["read", "read"]
    assert reads[0].arguments["path"] == "shop/cart.py"
    assert reads[0].arguments["end"] - reads[0].arguments["start"] == CONFIG.read_lines - 1
    heard = tuple(ToolResult(n, c, ToolStatus.OK, "") for n, c in enumerate(reads, 1))
    assert search.calls(ISSUE, [FOUND, heard]) == []
    clear = ScriptedSearch(replace(CONFIG, read_margin=1.01), 8)
    assert clear.calls(ISSUE, [FOUND]) == []


def test_when_nothing_is_found_it_searches_once_more_with_other_terms() -> None:
    search = ScriptedSearch(CONFIG, 8)
    nothing = (grep(1, "compute_total"),)
    again = search.calls(ISSUE, [nothing])
    assert again
    assert not {str(c.arguments["pattern"]) for c in again} & {
        str(c.arguments["pattern"]) for c in search.calls(ISSUE, [])
    }
    assert search.calls(ISSUE, [nothing, nothing]) == []


def test_the_answer_holds_only_gold_files_that_were_met() -> None:
    assert gold_answer(ISSUE, [FOUND]) == ["shop/cart.py"]
    assert gold_answer(ISSUE, []) == []
    assert seen_files([FOUND])[0] == first_row([FOUND])[0] == "shop/cart.py"
    assert set(seen_files([FOUND])) == {"shop/cart.py", "a.py", "shop/rules.py"}


def test_its_turns_are_readable_by_the_parser() -> None:
    teacher = Teacher(ScriptedSearch(CONFIG, 8), 2)

    def write(turn: int, answer_turn: bool, heard: tuple[tuple[ToolResult, ...], ...]) -> str:
        return asyncio.run(teacher.write(TurnState(ISSUE, turn, answer_turn, heard, (), 500)))

    first = parse_message(write(0, False, ()))
    assert list(first.calls) == ScriptedSearch(CONFIG, 8).calls(ISSUE, [])
    last = parse_message(write(1, True, (FOUND,)))
    assert last.answer is not None
    assert last.answer.files == ("shop/cart.py",)
    assert teacher.heard == (FOUND,)
