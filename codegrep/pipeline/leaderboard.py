"""One page that ranks what was measured: answers, rankings, cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codegrep.metrics.retrieval import CUTS
from codegrep.pipeline.results import FIRST_FILE, REFERENCE, WHOLE, Pair
from codegrep.tracking.pages import Block, Heading, Page, Paragraph, Table
from codegrep.tracking.rows import EvaluationRow

Column = tuple[str, Callable[[EvaluationRow], str]]
_NONE = "–"
_MIB = 2**20


def ranked(lines: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Return the rows, the best mean F0.5 first; those that have seen the gold files are last."""
    return sorted(lines, key=lambda line: (line.kind == "oracle", -line.f05_mean))


def leaderboard(lines: Sequence[EvaluationRow], pairs: Sequence[Pair], title: str, data: str) -> Page:
    """Build the page.

    Args:
        lines: of the evaluation.
        pairs: its comparisons.
        title: of the page.
        data: what was measured on, for people.
    """
    ordered = ranked(lines)
    against = {(pair.a, pair.on): pair for pair in pairs if pair.b == REFERENCE}
    answers: list[Column] = [
        ("F0.5 [95 %]", lambda line: _interval(line.f05_mean, line.f05_low, line.f05_high)),
        ("F0.5 of the first file", lambda line: _share(line.f05_top1)),
        ("F1", lambda line: _share(line.f1)),
        ("P", lambda line: _share(line.precision)),
        ("R", lambda line: _share(line.recall)),
        ("hit", lambda line: _share(line.hit)),
        ("files", lambda line: _number(line.files, 2)),
        (f"− {REFERENCE} [95 %]", lambda line: _difference(against.get((line.retriever, WHOLE)))),
        ("at equal length [95 %]", lambda line: _difference(against.get((line.retriever, FIRST_FILE)))),
    ]
    at: list[Column] = [
        (f"{short}@{k}", lambda line, name=f"{measure}_at_{k}": _share(line.at.get(name)))  # type: ignore[misc]
        for measure, short in (("hit", "hit"), ("recall", "R"), ("precision", "P"))
        for k in CUTS
    ]
    cost: list[Column] = [
        ("query ms p50", lambda line: _scaled(line.query_seconds_p50, 1000, 1)),
        ("p95", lambda line: _scaled(line.query_seconds_p95, 1000, 1)),
        ("index s", lambda line: _number(line.index_seconds, 2)),
        ("index MiB", lambda line: _scaled(line.index_bytes, 1 / _MIB, 1)),
        ("s/issue", lambda line: _number(line.seconds_per_issue, 2)),
        ("turns", lambda line: _number(line.turns, 1)),
        ("tokens", lambda line: _number(line.tokens, 0)),
    ]
    blocks: list[Block] = [
        Heading("Answers"),
        _table(ordered, answers),
        Heading("Rankings"),
        Paragraph("The first k files of each ranking; a model's answer is its ranking."),
        _table(ordered, at),
        Heading("Cost"),
        Paragraph("Query: one issue, the index being there. Index: of a tree, what is kept of other commits reused."),
        _table([line for line in ordered if line.kind != "oracle"], cost),
    ]
    if any(line.kind == "oracle" for line in ordered):
        blocks.append(Paragraph("* has seen the gold files: a ceiling, no rival."))
    return Page(title, data, tuple(blocks))


def _table(lines: Sequence[EvaluationRow], columns: Sequence[Column]) -> Table:
    """Columns that no row fills are left out."""
    cells = {name: [of(line) for line in lines] for name, of in columns}
    filled = {name: column for name, column in cells.items() if any(cell != _NONE for cell in column)}
    names = [line.retriever + " *" * (line.kind == "oracle") for line in lines]
    return Table(("retriever", *filled), list(zip(names, *filled.values(), strict=True)))


def _difference(pair: Pair | None) -> str:
    if pair is None:
        return _NONE
    d = pair.comparison.difference
    return f"{d.estimate:+.3f} [{d.low:+.3f}, {d.high:+.3f}]"


def _interval(mean: float, low: float | None, high: float | None) -> str:
    return f"{mean:.3f}" if low is None or high is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _share(value: float | None) -> str:
    return _number(value, 3)


def _scaled(value: float | None, factor: float, digits: int) -> str:
    return _number(None if value is None else value * factor, digits)


def _number(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:,.{digits}f}"
