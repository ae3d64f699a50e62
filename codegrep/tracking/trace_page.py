"""One attempt at an issue, or two side by side, turn by turn: the record that is shown, and its HTML page.

Table 8 of CodeGrep (arXiv 2608.05886) sets two rollouts of one issue beside each other in this way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from codegrep.tracking import pages


@dataclass(frozen=True)
class TraceCall:
    """A tool call. arguments: as the model wrote them. status: "ok" or what went wrong; "" where it is not known."""

    name: str
    arguments: str
    status: str = ""


@dataclass(frozen=True)
class TraceTurn:
    """One message of the model and what it read next.

    Attributes:
        text: of the model, without its calls where these stand in `calls`.
        calls: in order.
        observation: what the model read next, "" for the last turn.
        tokens: sampled, None where they were not counted.
        seconds_model, seconds_tools: wall time, None where it was not measured.
    """

    text: str
    calls: tuple[TraceCall, ...]
    observation: str
    tokens: int | None = None
    seconds_model: float | None = None
    seconds_tools: float | None = None


@dataclass(frozen=True)
class Trace:
    """An attempt at an issue.

    Attributes:
        label: of the attempt: run, model, number.
        instance_id: of the issue.
        turns: in order.
        answer: files, best first.
        gold: files of the issue's patch; empty where they are not known.
        ending: exit cause, or whether the issue was resolved.
        scores: names and values, for people.
    """

    label: str
    instance_id: str
    turns: tuple[TraceTurn, ...]
    answer: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    ending: str = ""
    scores: tuple[tuple[str, str], ...] = ()

    @property
    def first_gold_turn(self) -> int | None:
        """The turn, from 1, whose observation names a gold file first; None where none does."""
        for number, turn in enumerate(self.turns, 1):
            if any(is_gold for _, is_gold in segments(turn.observation, self.gold)):
                return number
        return None


def segments(text: str, gold: Sequence[str]) -> list[tuple[str, bool]]:
    """Divide a text into pieces (piece, whether it is the path of a gold file), relative or absolute."""
    if not gold:
        return [(text, False)]
    pattern = "|".join(re.escape(path) for path in sorted(gold, key=len, reverse=True))
    pieces = re.split(rf"(?<![\w./-])((?:(?:/[\w.-]+)*/)?(?:{pattern}))(?![\w/-]|\.\w)", text)
    return [(piece, number % 2 == 1) for number, piece in enumerate(pieces) if piece]


def summary(trace: Trace) -> list[tuple[str, str]]:
    """Return the facts of a trace that stand above its turns, each with its name."""
    tokens = [turn.tokens for turn in trace.turns if turn.tokens is not None]
    seconds = [s for turn in trace.turns for s in (turn.seconds_model, turn.seconds_tools) if s is not None]
    first = trace.first_gold_turn
    facts = [
        ("ended", trace.ending),
        ("turns", str(len(trace.turns))),
        ("calls", str(sum(len(turn.calls) for turn in trace.turns))),
        ("tokens", f"{sum(tokens):,}" if tokens else ""),
        ("seconds", f"{sum(seconds):.1f}" if seconds else ""),
        ("first gold file", f"turn {first}" if first else "never shown" if trace.gold else ""),
        *trace.scores,
    ]
    return [(name, value) for name, value in facts if value]


def measured(turn: TraceTurn) -> str:
    """Return tokens and seconds of a turn in words; "" where nothing was measured."""
    parts = [f"{turn.tokens:,} tokens"] if turn.tokens is not None else []
    for seconds, what in ((turn.seconds_model, "model"), (turn.seconds_tools, "tools")):
        if seconds is not None:
            parts.append(f"{what} {seconds:.1f} s")
    return " · ".join(parts)


def html(traces: Sequence[Trace]) -> str:
    """Return one page: a column a trace, a row a turn. Everything in it is text; nothing is fetched or run."""
    rows = list(zip_longest(*(trace.turns for trace in traces)))
    return pages.render(
        "trace.html",
        title=" and ".join(dict.fromkeys(trace.instance_id for trace in traces)),
        traces=traces,
        rows=rows,
        segments=segments,
        summary=summary,
        measured=measured,
    )
