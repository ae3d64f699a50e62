"""The scripted teacher: no model, but the real tools, so that a small model can be shown the protocol (SPEC 3.3).

It searches for terms of the issue text alone, reads the best candidates, and answers. Only its answer may use the gold
files,
and only those that its search has come across. What it makes is labelled source="scripted" wherever it appears.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from codegrep.config import TeacherConfig
from codegrep.issues import Issue
from codegrep.protocol import ToolCall, ToolResult
from codegrep.protocol.ranking import RankedFile, rank_files
from codegrep.protocol.write import answer_text, calls_text
from codegrep.rollout.policy import TurnState
from codegrep.rollout.terms import Term, search_terms

_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")


class ScriptedSearch:
    """What is searched and read, turn by turn; a pure function of the issue text and of what the tools said."""

    def __init__(self, config: TeacherConfig, max_calls: int) -> None:
        self._config = config
        self._max_calls = max_calls

    def calls(self, issue: Issue, heard: Sequence[Sequence[ToolResult]]) -> list[ToolCall]:
        """Calls of the next turn; empty when the search is over and the answer is due.

        Args:
            issue: only its problem statement is looked at.
            heard: results of the earlier turns, one sequence a turn.
        """
        terms = search_terms(issue.problem_statement)
        if not heard:
            return self._first(terms)
        ranked = rank_files([r for turn in heard for r in turn])
        if not ranked and len(heard) == 1:
            return self._second(terms)
        if self._config.reads and _is_close(ranked, self._config.read_margin) and not _has_read(heard):
            return [
                ToolCall(
                    "read",
                    {
                        "path": f.path,
                        "start": max(1, f.line - 2),
                        "end": max(1, f.line - 2) + self._config.read_lines - 1,
                    },
                )
                for f in ranked[: self._config.reads]
            ]
        return []

    def _first(self, terms: Sequence[Term]) -> list[ToolCall]:
        paths = [t for t in terms if t.kind == "path"][: self._config.globs]
        others = [t for t in terms if t.kind != "path"][: self._config.greps]
        calls = [ToolCall("glob", {"pattern": f"**/{t.text}"}) for t in paths] + [_grep(t) for t in others]
        return calls[: self._max_calls]

    def _second(self, terms: Sequence[Term]) -> list[ToolCall]:
        """The next terms, when the first ones found nothing at all."""
        rest = [t for t in terms if t.kind != "path"][self._config.greps :]
        return [_grep(t) for t in rest[: self._config.greps]][: self._max_calls]


class Teacher:
    """Writes the turns of one rollout, for `ScriptedPolicy`.

    Attributes:
        heard: results of all turns, once the rollout is over.
    """

    def __init__(self, search: ScriptedSearch, max_answer_files: int) -> None:
        self._search = search
        self._max = max_answer_files
        self.heard: tuple[tuple[ToolResult, ...], ...] = ()

    async def write(self, state: TurnState) -> str:
        """The text of the next turn."""
        self.heard = state.results
        calls = [] if state.answer_turn else self._search.calls(state.issue, state.results)
        return calls_text(calls) if calls else answer_text(gold_answer(state.issue, state.results)[: self._max])


def gold_answer(issue: Issue, heard: Sequence[Sequence[ToolResult]]) -> list[str]:
    """Gold files that some result names, in the tools' own order; empty where the search has met none."""
    return [path for path in seen_files(heard) if path in set(issue.gold_files)]


def seen_files(heard: Sequence[Sequence[ToolResult]]) -> list[str]:
    """Every file that some result names: ranked ones first, then the others in order of appearance."""
    results = [r for turn in heard for r in turn]
    ranked = [f.path for f in rank_files(results)]
    named = [m.path for r in results for m in r.files]
    return list(dict.fromkeys([*ranked, *named]))


def first_row(heard: Sequence[Sequence[ToolResult]]) -> list[str]:
    """The tool's own first file, no model: what an agent has to beat to show that it learned more than the tool
    knows.
    """
    return seen_files(heard)[:1]


def _grep(term: Term) -> ToolCall:
    arguments: dict[str, object] = {"pattern": _SPECIAL.sub(r"\\\1", term.text)}
    if term.kind == "word":
        arguments["ignore_case"] = True
    return ToolCall("grep", arguments)


def _is_close(ranked: Sequence[RankedFile], margin: float) -> bool:
    """Whether a second file scores nearly as much as the first, so that a look into both may decide."""
    return len(ranked) > 1 and ranked[1].score >= margin * ranked[0].score


def _has_read(heard: Iterable[Sequence[ToolResult]]) -> bool:
    return any(isinstance(r.call, ToolCall) and r.call.name == "read" for turn in heard for r in turn)
