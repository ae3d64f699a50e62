"""Figures of a run: training curves, retrievers side by side, gains issue by issue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from codegrep.tracking import style
from codegrep.tracking.curves import training_curves
from codegrep.tracking.rows import EvaluationRow, PairedScore
from codegrep.tracking.style import COLOURS, GREY
from codegrep.tracking.terminal import resampled

__all__ = ["gain_by_issue", "retriever_bars", "training_curves"]

_KIND_COLOURS = {"model": COLOURS[0], "baseline": COLOURS[1], "scripted": COLOURS[2], "oracle": GREY}
_KIND_MARKERS = {"model": "o", "baseline": "s", "scripted": "^", "oracle": "D"}
_KIND_WORDS = {
    "model": "model",
    "baseline": "baseline",
    "scripted": "scripted, no model",
    "oracle": "has seen the gold files (ceiling)",
}


def retriever_bars(rows: Sequence[EvaluationRow], title: str = "File F0.5 on held-out issues") -> Figure:
    """F0.5 by retriever, best on top: the mean as a mark, its 95% bootstrap interval as a line.

    Raises:
        ValueError: no rows.
    """
    if not rows:
        raise ValueError("retriever_bars needs at least one row")
    ranked = sorted(rows, key=lambda row: row.f05_mean)
    figure = style.blank(7.2, 1.3 + 0.36 * len(ranked))
    axes = figure.add_subplot()
    for place, row in enumerate(ranked):
        colour = _KIND_COLOURS[row.kind]
        if row.f05_low is not None and row.f05_high is not None:
            axes.plot(
                [row.f05_low, row.f05_high], [place, place], color=colour, lw=2.2, solid_capstyle="round", alpha=0.55
            )
        axes.plot(row.f05_mean, place, _KIND_MARKERS[row.kind], color=colour, ms=7, zorder=3)
        axes.annotate(
            f"{row.f05_mean:.3f}", (row.f05_mean, place), (0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    axes.set_yticks(range(len(ranked)), [_label(row, rows) for row in ranked])
    axes.set_ylim(-0.6, len(ranked) - 0.25)
    axes.set_xlim(0, min(1.02, max(0.4, 0.06 + max(row.f05_high or row.f05_mean for row in ranked))))
    units = resampled(rows)
    axes.set_xlabel(f"file F0.5 (mean over issues, 95% bootstrap interval{' over ' * bool(units)}{units})")
    axes.grid(axis="x", color="#e3e3e3")
    axes.set_axisbelow(True)
    style.open_axes(axes, left=False)
    kinds = [kind for kind in _KIND_WORDS if any(row.kind == kind for row in rows)]
    if len(kinds) > 1:
        handles = [axes.plot([], [], _KIND_MARKERS[kind], color=_KIND_COLOURS[kind])[0] for kind in kinds]
        figure.legend(
            handles,
            [_KIND_WORDS[k] for k in kinds],
            loc="outside lower center",
            ncols=len(kinds),
            frameon=False,
            fontsize=8,
        )
    issues = {row.issues for row in rows}
    heading = f"{title} (n = {issues.pop()})" if len(issues) == 1 else title
    axes.set_title(heading, loc="left", fontsize=11, fontweight="bold")
    return figure


def gain_by_issue(scores: Sequence[PairedScore], before: str, after: str) -> Figure:
    """F0.5 of `after` minus F0.5 of `before`, issue by issue, sorted: how many gained, how many lost, and by how much.

    Args:
        scores: both retrievers on the same issues.
        before, after: their labels.

    Raises:
        ValueError: no scores.
    """
    if not scores:
        raise ValueError("gain_by_issue needs at least one issue")
    ranked = sorted(scores, key=lambda score: (score.gain, score.instance_id))
    gains = np.array([score.gain for score in ranked])
    named = len(ranked) <= 40
    figure = style.blank(7.6, 1.6 + 0.19 * len(ranked)) if named else style.blank(7.6, 4.2)
    axes = figure.add_subplot()
    colours = [COLOURS[0] if gain > 0 else COLOURS[1] if gain < 0 else GREY for gain in gains]
    places = np.arange(len(ranked))
    if named:
        axes.barh(places, gains, color=colours, height=0.72)
        axes.plot(gains[gains == 0], places[gains == 0], "|", color=GREY, ms=7)
        axes.set_yticks(places, [score.instance_id for score in ranked], fontsize=7)
        axes.set_ylim(-0.7, len(ranked) - 0.3)
        axes.axvline(0, color="#333333", lw=0.8)
        axes.set_xlim(-1.05, 1.05)
        axes.set_xlabel(f"F0.5 of {after} − F0.5 of {before}")
        axes.grid(axis="x", color="#e3e3e3")
    else:
        axes.bar(places, gains, color=colours, width=1.0)
        axes.axhline(0, color="#333333", lw=0.8)
        axes.set_ylim(-1.05, 1.05)
        axes.set_xlim(-0.5, len(ranked) - 0.5)
        axes.set_ylabel(f"F0.5 of {after}\n− F0.5 of {before}")
        axes.set_xlabel("held-out issues, sorted by the difference")
        axes.grid(axis="y", color="#e3e3e3")
    axes.set_axisbelow(True)
    style.open_axes(axes, left=not named)
    better, worse = int((gains > 0).sum()), int((gains < 0).sum())
    axes.set_title(
        f"{after} against {before}: {better} better, {len(ranked) - better - worse} equal, {worse} worse; "
        f"mean {gains.mean():+.3f}",
        loc="left",
        fontsize=10,
        fontweight="bold",
    )
    return figure


def _label(row: EvaluationRow, rows: Sequence[EvaluationRow]) -> str:
    return row.retriever if len({other.issues for other in rows}) == 1 else f"{row.retriever} (n = {row.issues})"
