"""The simulator's result: where each design drifts, in a terminal and as a page, always under its label."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from codegrep.lab.bandit import LABEL, Run
from codegrep.lab.figures import svg
from codegrep.tracking import style

SHOWN = ("f05", "answered", "calls_per_turn", "tool_turns", "repeated", "files", "reads", "tokens")
CURVES = ("f05", "calls_per_turn", "tool_turns", "repeated", "tokens", "kl")


def simulation_table(runs: Sequence[Run]) -> RenderableType:
    """Expectations before and after training, one row a design, and the behaviour that won."""
    steps = runs[0].schedule.steps if runs else 0
    table = Table(title=f"{LABEL}\n{steps} steps", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("design")
    for name in SHOWN:
        table.add_column(name.replace("_", " "), justify="right")
    table.add_column("likeliest behaviour")
    if runs:
        table.add_row("(start)", *(_number(name, float(runs[0].curves[name][0])) for name in SHOWN), "")
    for run in runs:
        table.add_row(run.design, *(_number(name, float(run.curves[name][-1])) for name in SHOWN), behaviour(run))
    return Group(table)


def behaviour(run: Run) -> str:
    """The likeliest behaviour in words, with its probability."""
    arm = run.favourite
    searches = (
        f"{arm.turns} x {arm.calls} calls" + (", half repeated" if arm.repeats else "") if arm.turns else "no search"
    )
    reads = ", reads" if arm.reads else ""
    return f"{searches}{reads}, {arm.files} file{'s' if arm.files > 1 else ''} ({100 * run.policy.max():.0f}%)"


def simulation_markdown(runs: Sequence[Run]) -> str:
    """The table as Markdown."""
    head = ["design", *(name.replace("_", " ") for name in SHOWN), "likeliest behaviour"]
    rows = [["start", *(_number(name, float(runs[0].curves[name][0])) for name in SHOWN), ""]]
    rows += [
        [f"`{run.design}`", *(_number(name, float(run.curves[name][-1])) for name in SHOWN), behaviour(run)]
        for run in runs
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def simulation_page(runs: Sequence[Run]) -> str:
    """Curves of every design as one HTML file."""
    figure = style.blank(8.6, 1.9 * len(CURVES))
    grid = figure.subplots(len(CURVES), 1, sharex=True, squeeze=False)
    for row, name in enumerate(CURVES):
        axes = grid[row][0]
        for number, run in enumerate(runs):
            axes.plot(
                run.curves[name], color=style.colour(number), lw=1.4, ls=("-", "--")[number // 7 % 2], label=run.design
            )
        axes.set_ylabel(name.replace("_", " "), fontsize=8)
        axes.tick_params(labelsize=7)
        style.open_axes(axes, left=True)
    grid[0][0].legend(frameon=False, fontsize=7, ncols=3)
    grid[-1][0].set_xlabel("step", fontsize=8)
    rows = "".join(f"<li><b>{escape(run.design)}</b>: {escape(behaviour(run))}</li>" for run in runs)
    title = "Reward lab: simulation"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f'<body style="font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem">'
        f"<h1>{title}</h1><p><b>{escape(LABEL)}</b></p><ul>{rows}</ul>{svg(figure)}</body></html>\n"
    )


def _number(name: str, value: float) -> str:
    return f"{value:.0f}" if name == "tokens" else f"{value:.2f}"
