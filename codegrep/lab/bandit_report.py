"""The simulator's result: where each design drifts, in a terminal and as a page, always under its label."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.table import Table

from codegrep.lab.bandit import LABEL, Run
from codegrep.lab.page import document, named_items, svg
from codegrep.lab.tables import terminal_table, words
from codegrep.tracking import style

SHOWN = ("f05", "answered", "calls_per_turn", "tool_turns", "repeated", "files", "reads", "tokens")
CURVES = ("f05", "calls_per_turn", "tool_turns", "repeated", "tokens", "kl")
HEAD = ("design", *map(words, SHOWN), "likeliest behaviour")


def simulation_table(runs: Sequence[Run]) -> Table:
    """Return the rows for a terminal."""
    return terminal_table(f"{LABEL}\n{runs[0].schedule.steps} steps", HEAD, simulation_rows(runs))


def simulation_rows(runs: Sequence[Run]) -> list[list[str]]:
    """Return expectations at the start, then one row a design after training, with the behaviour that won."""

    def row(label: str, run: Run, step: int, ending: str) -> list[str]:
        values = [(name, float(run.curves[name][step])) for name in SHOWN]
        return [label, *(f"{value:.0f}" if name == "tokens" else f"{value:.2f}" for name, value in values), ending]

    return [row("start", runs[0], 0, ""), *(row(run.design, run, -1, behaviour(run)) for run in runs)]


def behaviour(run: Run) -> str:
    """Return the likeliest behaviour in words, with its probability."""
    arm = run.favourite
    searches = (
        f"{arm.turns} x {arm.calls} calls" + (", half repeated" if arm.repeats else "") if arm.turns else "no search"
    )
    reads = ", reads" if arm.reads else ""
    return f"{searches}{reads}, {arm.files} file{'s' if arm.files > 1 else ''} ({100 * run.policy.max():.0f}%)"


def simulation_page(runs: Sequence[Run]) -> str:
    """Return the curves of every design as one HTML file."""
    figure = style.blank(8.6, 1.9 * len(CURVES))
    grid = figure.subplots(len(CURVES), 1, sharex=True, squeeze=False)
    for row, name in enumerate(CURVES):
        axes = grid[row][0]
        for number, run in enumerate(runs):
            axes.plot(
                run.curves[name], color=style.colour(number), lw=1.4, ls=("-", "--")[number // 7 % 2], label=run.design
            )
        axes.set_ylabel(words(name), fontsize=8)
        axes.tick_params(labelsize=7)
        style.open_axes(axes, left=True)
    grid[0][0].legend(frameon=False, fontsize=7, ncols=3)
    grid[-1][0].set_xlabel("step", fontsize=8)
    favourites = named_items((run.design, behaviour(run)) for run in runs)
    return document("Reward lab: simulation", f"<p><b>{escape(LABEL)}</b></p>{favourites}{svg(figure)}")
