"""Figures of a data card: lengths, weights, filters, target sets, reads by turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from codegrep.tracking import style
from codegrep.tracking.style import COLOURS, GREY


def lengths(histogram: Mapping[int, int], beta: float, shortest: int, threshold: float) -> Figure:
    """Candidates by length of post-reasoning, with β, the least length, and the length that the weight filter asks for.

    Args:
        histogram: candidates by tokens.
        threshold: tokens at which the weight reaches its least value; infinite where none does.
    """
    figure = style.blank(7.2, 3.4)
    axes = figure.add_subplot()
    positive = {length: count for length, count in histogram.items() if length > 0}
    edges = [1 * 1.25**n for n in range(45)]
    top = max(positive, default=1)
    edges = [e for e in edges if e <= top * 1.25] or [1.0, 2.0]
    axes.hist(list(positive), bins=edges, weights=list(positive.values()), color=COLOURS[0], alpha=0.8)
    axes.set_xscale("log")
    marks = ((beta, f"β = {beta:g} (median)", COLOURS[1]), (shortest, f"least length {shortest}", GREY))
    for at, words, colour in (*marks, (threshold, f"weight filter: {threshold:.1f}", COLOURS[2])):
        if 0 < at < float("inf"):
            axes.axvline(at, color=colour, lw=1.6, label=words)
    axes.legend(frameon=False, fontsize=8)
    _finish(axes, "Post-reasoning of the candidates", "tokens (log)", "candidates")
    return figure


def bars(
    counts: Mapping[str, float] | Sequence[tuple[str, float]],
    title: str,
    xlabel: str,
    ylabel: str,
    mark: float | None = None,
) -> Figure:
    """Upright bars in the order given. mark: a place on the axis, for numeric labels, that gets a line."""
    items = list(counts.items()) if isinstance(counts, Mapping) else list(counts)
    figure = style.blank(7.2, 3.2)
    axes = figure.add_subplot()
    axes.bar(range(len(items)), [value for _, value in items], color=COLOURS[0], alpha=0.85)
    step = max(1, len(items) // 20)
    axes.set_xticks(range(0, len(items), step), [label for label, _ in items][::step], fontsize=8)
    if mark is not None:
        axes.axvline(mark, color=COLOURS[1], lw=1.6)
    _finish(axes, title, xlabel, ylabel)
    return figure


def funnel(steps: Sequence[tuple[str, int]], title: str) -> Figure:
    """How many are left after each step, largest on top, with their numbers."""
    figure = style.blank(7.2, 0.9 + 0.36 * len(steps))
    axes = figure.add_subplot()
    places = range(len(steps))[::-1]
    axes.barh(list(places), [count for _, count in steps], color=COLOURS[0], alpha=0.8)
    most = max((count for _, count in steps), default=1) or 1
    for place, (_, count) in zip(places, steps, strict=True):
        axes.annotate(f"{count:,}", (count, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(list(places), [label for label, _ in steps], fontsize=8)
    axes.set_xlim(0, most * 1.15)
    style.open_axes(axes, left=False)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    return figure


def _finish(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(axis="y", color="#e3e3e3")
    axes.set_axisbelow(True)
    style.open_axes(axes, left=True)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
