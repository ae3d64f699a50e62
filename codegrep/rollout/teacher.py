"""The scripted teacher: real tools and no model, to show a small model the protocol.

It searches for the issue's title and greps for terms of its text, as far as it has the tools, reads the best
candidates, and answers. Only the answer looks at gold, and it names only files and lines that stand in the observations
and classes and functions that stand in the conversation. Its rollouts have source="scripted".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from codegrep.config import TeacherConfig
from codegrep.issues import Issue
from codegrep.issues.issue import Entity, LineRange
from codegrep.protocol import ToolCall
from codegrep.protocol.observation import Observation
from codegrep.protocol.ranking import RankedFile, rank_files
from codegrep.protocol.shown import ShownFile, merged
from codegrep.protocol.write import answer_text, calls_text
from codegrep.rollout.policy import TurnState
from codegrep.rollout.terms import Term, search_terms, title_of

_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")
_NAME = re.compile(r"\w+")
_QUERY_CHARS = 200  # of a search for terms


class ScriptedSearch:
    """Chooses the calls of each turn from the issue text and the observations alone.

    Args:
        config: how much it searches.
        max_calls: calls that a turn may make.
        tools: those that it has.
        always_reads: read also where the first candidate stands out, as answers with line ranges need.
    """

    def __init__(
        self, config: TeacherConfig, max_calls: int, tools: Collection[str], always_reads: bool = False
    ) -> None:
        self._config = config
        self._tools = tools
        self._max_calls = max_calls
        self._margin = 0.0 if always_reads else config.read_margin

    def calls(self, issue: Issue, observations: Sequence[Observation]) -> list[ToolCall]:
        """Return the calls of the next turn; none when the search is over and the answer is due.

        Args:
            issue: only its problem statement is used.
            observations: of the earlier turns.
        """
        terms = search_terms(issue.problem_statement)
        if not observations:
            return self._first(issue, terms)
        shown = {file.path: file for file in shown_so_far(observations)}
        if not shown:
            return self._second(terms) if len(observations) == 1 else []
        ranked = [f for f in rank_files([r for turn in observations for r in turn.results]) if f.path in shown]
        if self._config.reads and _is_close(ranked, self._margin) and not _has_read(observations):
            return self._possible([self._read(file, shown[file.path]) for file in ranked[: self._config.reads]])
        return []

    def _read(self, file: RankedFile, shown: ShownFile) -> ToolCall:
        """Return a read around a line that the model was shown, the best-ranked one if possible."""
        line = file.line if file.line in shown.lines else min(shown.lines, default=1)
        start = max(1, line - 2)
        return ToolCall("read", {"path": file.path, "start": start, "end": start + self._config.read_lines - 1})

    def _first(self, issue: Issue, terms: Sequence[Term]) -> list[ToolCall]:
        paths = [t for t in terms if t.kind == "path"][: self._config.globs]
        others = [t for t in terms if t.kind != "path"][: self._config.greps]
        calls = [ToolCall("glob", {"pattern": f"**/{t.text}"}) for t in paths] + [_grep(t) for t in others]
        title = title_of(issue.problem_statement)
        return self._possible([ToolCall("search", {"query": title}), *calls] if title else calls)

    def _second(self, terms: Sequence[Term]) -> list[ToolCall]:
        """Return searches for the next terms, when the first ones found nothing."""
        rest = [t for t in terms if t.kind != "path"][self._config.greps :]
        words = " ".join(term.text for term in terms)[:_QUERY_CHARS]
        searches = [ToolCall("search", {"query": words})] if words else []
        return self._possible([*searches, *(_grep(t) for t in rest[: self._config.greps])])

    def _possible(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        return [call for call in calls if call.name in self._tools][: self._max_calls]


class Teacher:
    """Writes the turns of one rollout, for ScriptedPolicy.

    Args:
        config: how much it searches and answers.
        max_calls: calls that a turn may make.
        tools: those that it has.
        prompt: form of the answer that the system prompt asks for (agent.prompt).

    Attributes:
        observations: of all turns, complete once the rollout is over.
    """

    def __init__(self, config: TeacherConfig, max_calls: int, tools: Collection[str], prompt: str = "short") -> None:
        self._search = ScriptedSearch(config, max_calls, tools, always_reads=prompt == "detailed")
        self._most = config.max_answer_files
        self._prompt = prompt
        self.observations: tuple[Observation, ...] = ()

    async def write(self, state: TurnState) -> str:
        """Return the text of the next turn."""
        self.observations = state.observations
        calls = [] if state.answer_turn else self._search.calls(state.issue, state.observations)
        return calls_text(calls) if calls else self._answer(state)

    def _answer(self, state: TurnState) -> str:
        files = gold_shown(state.issue, state.observations)[: self._most]
        return answer_text(
            files,
            gold_ranges_shown(state.issue, state.observations, files) if self._prompt == "detailed" else None,
            gold_entities_shown(state, files) if self._prompt == "entities" else None,
        )


def shown_so_far(observations: Sequence[Observation]) -> tuple[ShownFile, ...]:
    """Return every file that some turn showed, in the order in which they were shown."""
    return merged(file for turn in observations for file in turn.files)


def gold_shown(issue: Issue, observations: Sequence[Observation]) -> list[str]:
    """Return the gold files that the model was shown, in that order: the ceiling of an answer that invents nothing."""
    return [file.path for file in shown_so_far(observations) if file.path in issue.gold_files]


def gold_met(issue: Issue, observations: Sequence[Observation]) -> list[str]:
    """Return the gold files that the search matched, shown or not: the ceiling of a better display."""
    matched = dict.fromkeys(match.path for turn in observations for result in turn.results for match in result.files)
    return [path for path in matched if path in issue.gold_files]


def first_row(observations: Sequence[Observation]) -> list[str]:
    """Return the first file shown: a baseline that an agent has to beat to have learned more than the tools know."""
    return [file.path for file in shown_so_far(observations)][:1]


def gold_ranges_shown(issue: Issue, observations: Sequence[Observation], files: Sequence[str]) -> list[LineRange]:
    """Return the shown part of each gold range in `files`, from its first to its last line shown."""
    lines = {file.path: file.lines for file in shown_so_far(observations) if file.path in files}
    ranges = []
    for gold in issue.gold_ranges:
        inside = [line for line in lines.get(gold.path, ()) if gold.start <= line <= gold.end]
        if inside:
            ranges.append(LineRange(gold.path, min(inside), max(inside)))
    return ranges


def gold_entities_shown(state: TurnState, files: Sequence[str]) -> list[Entity]:
    """Return the gold classes and functions of `files` whose names stand in the prompt or an observation."""
    names = {name for role, text in state.messages if role == "user" for name in _NAME.findall(text)}
    entities = state.issue.gold_entities or ()
    return [entity for entity in entities if entity.path in files and names.issuperset(entity.name.split("."))]


def _grep(term: Term) -> ToolCall:
    arguments: dict[str, object] = {"pattern": _SPECIAL.sub(r"\\\1", term.text)}
    if term.kind == "word":
        arguments["ignore_case"] = True
    return ToolCall("grep", arguments)


def _is_close(ranked: Sequence[RankedFile], margin: float) -> bool:
    """Return whether a second file scores nearly as much as the first, so that reading both may decide."""
    return bool(ranked) and (margin <= 0 or (len(ranked) > 1 and ranked[1].score >= margin * ranked[0].score))


def _has_read(observations: Sequence[Observation]) -> bool:
    results = [result for turn in observations for result in turn.results]
    return any(isinstance(result.call, ToolCall) and result.call.name == "read" for result in results)
