"""Curves of training, one panel a quantity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from codegrep.tracking import style
from codegrep.tracking.style import GREY

History = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class _Panel:
    """One small multiple. The first metric is its subject; the others are drawn when only one design is shown."""

    title: str
    unit: str
    metrics: tuple[str, ...]
    labels: tuple[str, ...] = ()
    share: bool = False  # an axis in per cent
    from_zero: bool = True


_PANELS = (
    _Panel("Reward", "reward", ("reward/total",), ("total",), from_zero=False),
    _Panel(
        "Quality of training rollouts",
        "score",
        ("rollout/f05", "rollout/precision", "rollout/recall"),
        ("F0.5", "precision", "recall"),
        from_zero=False,
    ),
    _Panel("KL to the reference", "nats/token", ("policy/kl",)),
    _Panel("Entropy", "nats/token", ("policy/entropy",), from_zero=False),
    _Panel(
        "Completion length",
        "tokens",
        ("completions/mean_length", "completions/generated"),
        ("with tool text", "generated"),
    ),
    _Panel("Completions cut by the budget", "of completions", ("completions/clipped_ratio",), share=True),
    _Panel("Turns", "turns", ("rollout/turns", "rollout/tool_turns"), ("all", "with tool calls")),
    _Panel("Calls a turn", "calls", ("rollout/calls_per_turn",)),
    _Panel("Advantage factor", "factor", ("advantage/factor",), from_zero=False),
    _Panel("Gradient norm", "norm", ("optim/grad_norm",)),
    _Panel("Groups without signal", "of groups", ("group/dead_rate",), share=True),
    _Panel(
        "Tokens clipped by PPO",
        "of sampled tokens",
        ("policy/clip_ratio_region", "policy/clip_ratio_low", "policy/clip_ratio_high"),
        ("all", "below", "above"),
        share=True,
    ),
)


def training_curves(runs: Mapping[str, Sequence[History]] | Sequence[History] | History, title: str = "") -> Figure:
    """Small multiples over optimiser steps: reward, KL, entropy, length, truncation, turns, calls, gradients ….

    Args:
        runs: design label -> one history a seed (`history.history`); or, for one design, its histories or a single
            one. A seed is a thin line, the mean over seeds a thick one. Thick lines (thin ones too, when designs are
            compared) are smoothed by a centred running mean, whose width is printed below.
        title: above the figure.

    Returns:
        The figure; a panel that no run has numbers for is left out. With one design, the parts of a quantity share
        its panel; with several, a panel shows its main quantity, one colour a design.
    """
    designs = _designs(runs)
    panels = [
        p for p in _panels(designs) if any(points(seeds, name) for seeds in designs.values() for name in p.metrics)
    ]
    still = {panel.title: value for panel in panels if (value := _still(panel, designs)) is not None}
    panels = [panel for panel in panels if panel.title not in still]
    columns = min(4, max(1, len(panels)))
    lines = max(1, math.ceil(len(panels) / columns))
    figure = style.blank(3.3 * columns, 2.45 * lines + 0.75)
    steps = max((len(seed) for seeds in designs.values() for seed in seeds), default=0)
    width = 2 * (steps // 24) + 1
    for index, panel in enumerate(panels):
        _draw_panel(figure.add_subplot(lines, columns, index + 1), panel, designs, width)
    if not panels and not still:
        figure.text(0.5, 0.5, "no training metrics were logged", ha="center", color=GREY)
    if len(designs) > 1:
        handles = [figure.axes[0].plot([], [], color=style.colour(i), lw=2)[0] for i in range(len(designs))]
        figure.legend(handles, list(designs), loc="outside upper right", ncols=min(6, len(designs)), frameon=False)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    reading = [_reading(designs, width), *unmoved_text(still)]
    figure.supxlabel("\n".join(reading), fontsize=8, color=GREY)
    return figure


def _still(panel: _Panel, designs: Mapping[str, Sequence[History]]) -> str | None:
    """Return the value of a panel all of whose curves have one and the same value at every step, for people."""
    names = panel.metrics[:1] if len(designs) > 1 else panel.metrics
    return constant([c for seeds in designs.values() for name in names for c in points(seeds, name)], panel.share)


def constant(curves: Sequence[tuple[np.ndarray, np.ndarray]], share: bool) -> str | None:
    """Return the one value of curves that never move, as text; None where one moves or there is a single step."""
    values = {float(value) for _, curve in curves for value in curve}
    if len(values) != 1 or max(len(steps) for steps, _ in curves) < 2:
        return None
    (value,) = values
    return f"{100 * value:.0f} %" if share else f"{value:.3g}"


def unmoved_text(still: Mapping[str, str]) -> list[str]:
    """Return a line about panels that are not drawn, by title; nothing where there are none."""
    return [f"the same at every step: {'; '.join(f'{t} {v}' for t, v in still.items())}"] if still else []


def _designs(runs: Mapping[str, Sequence[History]] | Sequence[History] | History) -> dict[str, list[History]]:
    if isinstance(runs, Mapping):
        return {label: list(seeds) for label, seeds in runs.items()}
    rows = [entry for entry in runs if isinstance(entry, Mapping)]
    return {"": [rows] if rows else [entry for entry in runs if not isinstance(entry, Mapping)]}


def _panels(designs: Mapping[str, Sequence[History]]) -> list[_Panel]:
    """Return the panels, with the reward's own parts put beside the total when there is one design."""
    parts = sorted(
        {
            name
            for seeds in designs.values()
            for seed in seeds
            for row in seed
            for name in row
            if name.startswith("reward/") and name != "reward/total"
        }
    )
    first, *others = _PANELS
    labels = (*first.labels, *(name.removeprefix("reward/") for name in parts))
    return [_Panel(first.title, first.unit, (*first.metrics, *parts), labels), *others]


def _draw_panel(axes: Axes, panel: _Panel, designs: Mapping[str, Sequence[History]], width: int) -> None:
    several = len(designs) > 1
    drawn: list[tuple[np.ndarray, np.ndarray, Line2D]] = []
    for number, seeds in enumerate(designs.values()):
        for index, name in enumerate(panel.metrics[:1] if several else panel.metrics):
            curves = points(seeds, name)
            if not curves:
                continue
            colour = style.colour(number if several else index)
            label = panel.labels[index] if panel.labels and not several else None
            for steps, values in curves:
                thin = smooth(values, width) if several else values  # raw values of many runs hide each other
                axes.plot(steps, thin, color=colour, lw=0.8, alpha=0.4)
            steps, values = mean_of(curves)
            same = next((line for x, y, line in drawn if np.array_equal(x, steps) and np.array_equal(y, values)), None)
            if same is not None and label:  # drawn once, under both names
                same.set_label(f"{same.get_label()} = {label}")
                continue
            marker = "o" if len(steps) == 1 else ""
            (line,) = axes.plot(steps, smooth(values, width), color=colour, lw=1.8, label=label, marker=marker)
            drawn.append((steps, values, line))
    axes.set_title(panel.title, loc="left", fontsize=9.5)
    axes.set_ylabel(panel.unit, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.tick_params(labelsize=8)
    axes.grid(color="#ececec")
    if panel.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if panel.from_zero:
        highest = max((float(np.max(line.get_ydata())) for line in axes.lines), default=0.0)
        axes.set_ylim(0, 1.06 * highest if highest > 0 else 0.02)
        if highest <= 0:
            axes.text(0.5, 0.5, "0 throughout", transform=axes.transAxes, ha="center", color=GREY, fontsize=8)
    style.open_axes(axes, left=True)
    if not several and (len(drawn) > 1 or any(" = " in str(line.get_label()) for _, _, line in drawn)):
        axes.legend(fontsize=7, frameon=False, handlelength=1.2, labelspacing=0.2)


def points(seeds: Sequence[History], name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (steps, values) of a metric for every seed that has it, without what is not finite."""
    found = []
    for seed in seeds:
        points = [(row["step"], row[name]) for row in seed if name in row and math.isfinite(row[name])]
        if points:
            found.append((np.array([step for step, _ in points]), np.array([value for _, value in points])))
    return found


def mean_of(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Average over the seeds that have a value at a step, as far as the shortest seed goes.

    A mean over fewer seeds would jump where one ends.
    """
    if len(curves) == 1:
        return curves[0]
    last = min(steps[-1] for steps, _ in curves)
    by_step: dict[float, list[float]] = {}
    for steps, values in curves:
        for step, value in zip(steps, values, strict=True):
            if step <= last:
                by_step.setdefault(float(step), []).append(float(value))
    ordered = sorted(by_step)
    return np.array(ordered), np.array([np.mean(by_step[step]) for step in ordered])


def smooth(values: np.ndarray, width: int) -> np.ndarray:
    """Centred running mean; at the ends over what is there."""
    if width <= 1 or len(values) < 3:
        return values
    kernel = np.ones(min(width, len(values) // 2 * 2 - 1))
    averaged: np.ndarray = np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")
    return averaged


def _reading(designs: Mapping[str, Sequence[History]], width: int) -> str:
    seeds = max((len(seeds) for seeds in designs.values()), default=1)
    words = ["optimiser step"]
    if seeds > 1:
        words.append(f"thin: each of {seeds} seeds; thick: their mean")
    if width > 1:
        which = "lines" if len(designs) > 1 else "thick lines"
        words.append(f"{which} are running means over {width} steps")
    return " · ".join(words)
