"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from codegrep.tracking.rows import EvaluationRow, FunnelRow

_NONE = "–"
# In the order in which they go.
_LEAST_TELLING = (
    *("median", "calls", "files", "s/issue", "tokens", "turns", "s alone", "≥0.8", "function", "class", "lines"),
    "mined",
)
_STYLES = {"model": "bold", "baseline": "", "scripted": "", "oracle": "dim"}


def evaluation_table(rows: Sequence[EvaluationRow], title: str = "", width: int = 100) -> Table:
    """Set retrievers side by side, in the order given.

    Columns that no row fills are left out, and in a terminal narrower than the table the least telling ones; numbers
    are never cut. What does not apply is shown as a dash.

    Args:
        rows: one a retriever.
        title: above the table.
        width: characters that the terminal shows in one line.
    """
    issues = sorted({row.issues for row in rows})
    names = [row.retriever + ("*" if row.kind == "oracle" else "") for row in rows]
    columns = _columns(rows, several_counts=len(issues) > 1)
    left_out = []
    for name in _LEAST_TELLING:
        if name in columns and _width(names, columns) > width:
            del columns[name]
            left_out.append(name)
    table = Table(
        title=title or None, title_justify="left", caption_justify="left", pad_edge=False, box=box.SIMPLE_HEAD
    )
    table.caption = _caption(rows, issues, columns, left_out)
    table.add_column("retriever", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for index, row in enumerate(rows):
        table.add_row(Text(names[index]), *(cells[index] for cells in columns.values()), style=_STYLES[row.kind])
    return table


def resampled(rows: Sequence[EvaluationRow]) -> str:
    """Return what the intervals of these rows draw again, in words; "" where they have none or differ in it."""
    counts = {row.repositories for row in rows}
    if len(counts) != 1 or (count := counts.pop()) is None:
        return ""
    return f"{count} repositories and their issues" if count > 1 else "the issues of one repository"


def _columns(rows: Sequence[EvaluationRow], several_counts: bool) -> dict[str, list[str]]:
    columns = {
        "F0.5 [95%]": [_interval(row) for row in rows],
        "median": [_share(row.f05_median) for row in rows],
        "P": [_share(row.precision) for row in rows],
        "R": [_share(row.recall) for row in rows],
        "≥0.8": [_percent(row.share_08) for row in rows],
        "files": [_number(row.files, 2) for row in rows],
        "turns": [_number(row.turns, 1) for row in rows],
        "calls": [_number(row.calls, 1) for row in rows],
        "tokens": [_number(row.tokens, 0) for row in rows],
        "s/issue": [_number(row.seconds_per_issue, 2) for row in rows],
        "s alone": [_number(row.latency_seconds, 2) for row in rows],
        "mined": [_share(row.f05_mined) for row in rows],
        "lines": [_share(row.line_f05) for row in rows],
        "class": [_share(row.class_f1) for row in rows],
        "function": [_share(row.function_f1) for row in rows],
    }
    if several_counts:
        columns["n"] = [str(row.issues) for row in rows]
    return {name: cells for name, cells in columns.items() if any(cell != _NONE for cell in cells)}


def _width(names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> int:
    """Of the table with every cell on one line: three characters stand between columns, one at each end."""
    longest = [max(len(name), *map(len, cells)) for name, cells in columns.items()]
    return 2 + max(map(len, ["retriever", *names])) + sum(3 + cell for cell in longest)


def funnel_table(rows: Sequence[FunnelRow], title: str = "", what: str = "issues") -> Table:
    """How data became fewer, step by step, with every reason and its count."""
    table = Table(title=title or None, title_justify="left", pad_edge=False, box=box.SIMPLE_HEAD)
    table.add_column("step", no_wrap=True)
    table.add_column(what, justify="right")
    table.add_column("dropped", justify="right")
    table.add_column("why")
    for row in rows:
        reasons = sorted(row.dropped.items(), key=lambda item: (-item[1], item[0]))
        lost = sum(row.dropped.values())
        table.add_row(
            Text(row.step),
            f"{row.kept:,}",
            f"{lost:,}" if lost else "",
            Text(", ".join(f"{reason} {count:,}" for reason, count in reasons if count)),
        )
    return table


_PARTS = {
    "s alone": "latency_issues",
    "mined": "mined_issues",
    "lines": "line_issues",
    "class": "class_issues",
    "function": "function_issues",
}


def on_parts(rows: Sequence[EvaluationRow], columns: Collection[str]) -> dict[str, str]:
    """Of these columns the ones that are means over a part of the issues, with how many: "8 issues"."""
    said = {}
    for name in (name for name in _PARTS if name in columns):
        counts = sorted({count for row in rows if (count := getattr(row, _PARTS[name])) is not None})
        said[name] = f"{' or '.join(map(str, counts))} issue{'s' * (counts != [1])}"
    return said


def _caption(
    rows: Sequence[EvaluationRow], issues: Sequence[int], columns: Collection[str], left_out: Sequence[str]
) -> str | None:
    notes = [f"{issues[0]} held-out issue{'s' * (issues[0] != 1)}"] if len(issues) == 1 else []
    if units := resampled(rows):
        notes.append(f"95%: resampling {units}")
    notes += [f"{name}: {count}" for name, count in on_parts(rows, columns).items()]
    if any(row.kind == "oracle" for row in rows):
        notes.append("* has seen the gold files: a ceiling, no retriever")
    if left_out:
        notes.append(f"no room for {', '.join(left_out)}")
    return "; ".join(notes) or None


def _interval(row: EvaluationRow) -> str:
    if row.f05_low is None or row.f05_high is None:
        return _share(row.f05_mean)
    return f"{_share(row.f05_mean)} [{_share(row.f05_low)}, {_share(row.f05_high)}]"


def _share(value: float | None) -> str:
    """As statistics are printed: without the zero before the point."""
    if value is None:
        return _NONE
    return f"{value:.3f}" if value >= 0.9995 else f"{value:.3f}".removeprefix("0")


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.0f}%"


def _number(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{value:,.{digits}f}"
