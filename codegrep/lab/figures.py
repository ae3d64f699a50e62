"""Figures of the replay: distributions, agreement, what is pushed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from codegrep.lab.measures import PROPERTIES
from codegrep.lab.replay import Replay
from codegrep.lab.tables import words
from codegrep.tracking import style

BINS = 40


def distributions(replay: Replay) -> Figure:
    """Draw rewards and final advantages, one row a design."""
    rows = len(replay.rescored)
    figure = style.blank(8.4, 0.6 + 1.15 * rows)
    grid = figure.subplots(rows, 2, squeeze=False)
    for row, one in enumerate(replay.rescored):
        for column, values in enumerate((one.batch.rewards, one.batch.advantages)):
            axes = grid[row][column]
            shown = values[~np.isnan(values)]
            if len(shown):
                low, high = float(shown.min()), float(shown.max())
                edges = np.linspace(low, high, BINS + 1) if high > low else np.linspace(low - 0.5, high + 0.5, BINS + 1)
                counts, _ = np.histogram(shown, edges)
                axes.stairs(counts / len(shown), edges, fill=True, color=style.colour(row), alpha=0.8)
            axes.set_yticks([])
            axes.tick_params(labelsize=7)
            style.open_axes(axes, left=False)
            if row == 0:
                axes.set_title(("reward", "advantage after the factor")[column], loc="left", fontsize=9)
        grid[row][0].set_ylabel(one.design.name, rotation=0, ha="right", va="center", fontsize=8)
    return figure


def pushes(replay: Replay) -> Figure:
    """Draw the correlation of advantages and properties, a cell for each design and property."""
    values = np.array([list(m.pushes.values()) for m in replay.designs])
    return _cells(values, [m.name for m in replay.designs], [words(p) for p in PROPERTIES], "pushed down … pushed up")


def rank_agreement(replay: Replay) -> Figure:
    """Draw Kendall's τ of every pair of designs."""
    names = [m.name for m in replay.designs]
    values = np.eye(len(names))
    for agreement in replay.agreements:
        i, j = names.index(agreement.first), names.index(agreement.second)
        values[i, j] = values[j, i] = agreement.tau
    return _cells(values, names, names, "Kendall τ of rewards within groups")


def update_mass(replay: Replay) -> Figure:
    """Draw the mean size of the advantage before the factor, after it, and after masks."""
    names = [m.name for m in replay.designs]
    figure = style.blank(7.6, 1.2 + 0.42 * len(names))
    axes = figure.add_subplot()
    places = np.arange(len(names))[::-1]
    stages = (("normalised", "mass_normalised"), ("x factor", "mass_factor"), ("x mask", "mass"))
    for number, (label, key) in enumerate(stages):
        widths = [getattr(m, key) for m in replay.designs]
        axes.barh(places + 0.26 * (1 - number), widths, height=0.24, color=style.colour(number), label=label)
    axes.set_yticks(places, names, fontsize=8)
    axes.set_xlabel("mean |advantage| a rollout", fontsize=8)
    axes.legend(frameon=False, fontsize=8)
    style.open_axes(axes, left=False)
    return figure


def _cells(values: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str], title: str) -> Figure:
    figure = style.blank(1.9 + 0.82 * len(columns), 1.3 + 0.36 * len(rows))
    axes = figure.add_subplot()
    axes.imshow(np.nan_to_num(values), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = "–" if math.isnan(value) else f"{value:+.2f}"
        axes.text(
            column, row, text, ha="center", va="center", fontsize=8, color="white" if abs(value) > 0.6 else "black"
        )
    axes.set_xticks(range(len(columns)), columns, rotation=30, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_title(title, loc="left", fontsize=9)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure
