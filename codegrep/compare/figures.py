"""Figures of a comparison: training curves with bands over seeds, held-out F0.5, and differences with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from codegrep.compare.analysis import Analysis, Retriever
from codegrep.compare.designs import ComparedDesign
from codegrep.compare.verdict import MARGIN
from codegrep.tracking import style
from codegrep.tracking.curves import constant, points, smooth, unmoved_text
from codegrep.tracking.style import GREY

# Beside the colour, so that lines stay apart in print and for everybody.
_LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class _Panel:
    """metrics: the first that a run has is drawn. designs: indices of those that the panel is about."""

    title: str
    unit: str
    metrics: tuple[str, ...]
    designs: tuple[int, ...]
    share: bool = False
    from_zero: bool = True


def curves_figure(designs: Sequence[ComparedDesign]) -> Figure | None:
    """Training curves as in CodeGrep's figures 2 and 4: mean over seeds as a line, lowest to highest seed as a band.

    Rewards that are defined differently are not comparable, so each definition has a panel of its own; F0.5 of the
    training rollouts is the same for all and follows them. None when no run has a curve.
    """
    panels = [panel for panel in _panels(designs) if any(_lines(panel, designs[number]) for number in panel.designs)]
    if not panels:
        return None
    still = {panel.title: value for panel in panels if (value := _still(panel, designs)) is not None}
    panels = [panel for panel in panels if panel.title not in still]
    columns = min(4, max(1, len(panels))) if len(panels) != 5 else 3
    rows = max(1, math.ceil(len(panels) / columns))
    figure = style.blank(3.35 * columns, 2.6 * rows + 0.9)
    steps = max((len(run.curves) for design in designs for run in design.runs), default=0)
    width = 2 * (steps // 24) + 1
    for index, panel in enumerate(panels):
        _draw(figure.add_subplot(rows, columns, index + 1), panel, designs, width)
    _legend(figure, designs)
    reading = [_reading(designs, width), *unmoved_text(still)]
    figure.supxlabel("\n".join(reading), fontsize=8, color=GREY)
    return figure


def _panels(designs: Sequence[ComparedDesign]) -> list[_Panel]:
    everyone = tuple(range(len(designs)))
    rewards: dict[str, list[int]] = {}
    for number, design in enumerate(designs):
        rewards.setdefault(design.reward, []).append(number)
    panels = []
    for members in rewards.values():
        names = list(dict.fromkeys(designs[number].reward_label for number in members))
        title = "Reward" if len(rewards) == 1 else f"Reward as {', '.join(names)} defines it"
        panels.append(_Panel(title, "reward", ("reward/total",), tuple(members), from_zero=False))
    return [
        *panels,
        _Panel("F0.5 of training rollouts", "F0.5", ("rollout/f05",), everyone, from_zero=False),
        _Panel("F0.5 of the checkpoints", "F0.5", ("checkpoint/f05",), everyone, from_zero=False),
        _Panel("KL to the reference", "nats/token", ("policy/kl",), everyone),
        _Panel("Tool-use turns", "turns a rollout", ("rollout/tool_turns",), everyone),
        _Panel("Completion length", "tokens, sampled", ("completions/generated",), everyone),
        _Panel("Gradient norm", "norm", ("optim/grad_norm",), everyone),
        _Panel("Completions cut by the budget", "of completions", ("completions/clipped_ratio",), everyone, share=True),
    ]


def _lines(panel: _Panel, design: ComparedDesign) -> list[tuple[np.ndarray, np.ndarray]]:
    histories = [run.curves for run in design.runs]
    return next((found for name in panel.metrics if (found := points(histories, name))), [])


def _still(panel: _Panel, designs: Sequence[ComparedDesign]) -> str | None:
    return constant([line for number in panel.designs for line in _lines(panel, designs[number])], panel.share)


def _draw(axes: Axes, panel: _Panel, designs: Sequence[ComparedDesign], width: int) -> None:
    highest = 0.0
    drawn: dict[bytes, str] = {}  # curves that coincide are drawn once, with a note
    notes = []
    for number in panel.designs:
        lines = _lines(panel, designs[number])
        if not lines:
            continue
        steps, values = _on_common_steps(lines, width)
        key = steps.tobytes() + values.tobytes()
        if key in drawn:
            notes.append(f"{designs[number].label} = {drawn[key]}")
            continue
        drawn[key] = designs[number].label
        colour = style.colour(number)
        mean = values.mean(axis=0)
        if len(values) > 1:
            axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, lw=0)
        axes.plot(
            steps,
            mean,
            color=colour,
            ls=_LINES[number % len(_LINES)],
            lw=1.8,
            marker="o" if len(steps) == 1 else "",
        )
        highest = max(highest, float(values.max()))
    axes.set_title(panel.title, loc="left", fontsize=9.5)
    if notes:
        axes.text(0.02, 0.96, "\n".join(notes), transform=axes.transAxes, va="top", color=GREY, fontsize=7)
    axes.set_ylabel(panel.unit, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.tick_params(labelsize=8)
    axes.grid(color="#ececec")
    axes.set_axisbelow(True)
    if panel.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if panel.from_zero:
        axes.set_ylim(0, 1.06 * highest if highest > 0 else 0.02)
    if highest <= 0:
        axes.text(0.5, 0.5, "0 throughout", transform=axes.transAxes, ha="center", color=GREY, fontsize=8)
    style.open_axes(axes, left=True)


def _on_common_steps(lines: Sequence[tuple[np.ndarray, np.ndarray]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (steps,) and (seeds, steps) smoothed values at the steps that every seed has.

    A band over fewer seeds would jump where one ends. Seeds without a common step: the longest alone.
    """
    common = sorted(set.intersection(*({float(step) for step in steps} for steps, _ in lines)))
    if not common:
        steps, values = max(lines, key=lambda line: len(line[0]))
        return steps, smooth(values, width)[None, :]
    rows = []
    for steps, values in lines:
        at = dict(zip(steps.tolist(), smooth(values, width).tolist(), strict=True))
        rows.append([at[step] for step in common])
    return np.array(common), np.array(rows)


def _legend(figure: Figure, designs: Sequence[ComparedDesign]) -> None:
    handles = [
        figure.axes[0].plot([], [], color=style.colour(i), ls=_LINES[i % len(_LINES)], lw=2)[0]
        for i in range(len(designs))
    ]
    labels = [f"{d.label} ({len(d.runs)} seed{'s' if len(d.runs) > 1 else ''})" for d in designs]
    figure.legend(handles, labels, loc="outside upper left", ncols=min(5, len(designs)), frameon=False, fontsize=9)


def _reading(designs: Sequence[ComparedDesign], width: int) -> str:
    words = ["optimiser step"]
    if any(len(design.runs) > 1 for design in designs):
        words.append("line: mean over seeds; band: lowest to highest seed")
    if any(len(design.runs) == 1 for design in designs):
        words.append("no band: one seed")
    if width > 1:
        words.append(f"running means over {width} steps")
    return " · ".join(words)


def held_out_figure(analysis: Analysis) -> Figure:
    """F0.5 of every retriever: mean, 95% interval, and each training run as a dot."""
    lines = sorted(analysis.retrievers, key=lambda line: (line.interval.estimate, line.design))
    numbers = {line.label: number for number, line in enumerate(analysis.designs)}
    figure = style.blank(7.6, 1.25 + 0.4 * len(lines))
    axes = figure.add_subplot()
    for place, line in enumerate(lines):
        number = numbers.get(line.label)
        colour = GREY if number is None else style.colour(number)
        marker = "|" if number is None else _MARKERS[number % len(_MARKERS)]
        axes.plot([line.interval.low, line.interval.high], [place] * 2, color=colour, lw=2.4, alpha=0.5)
        if line.runs > 1:
            means = line.scores["f05"].run_means
            axes.plot(means, np.full(len(means), place - 0.24), "o", ms=3.6, mfc="white", mec=colour, mew=1.0)
        axes.plot(line.interval.estimate, place, marker, color=colour, ms=8 if number is not None else 10, mew=2)
        axes.annotate(
            f"{line.interval.estimate:.3f}", (line.interval.estimate, place), (0, 6), textcoords="offset points",
            ha="center", fontsize=8,
        )  # fmt: skip
    axes.set_yticks(range(len(lines)), [_row_label(line) for line in lines])
    axes.set_ylim(-0.6, len(lines) - 0.3)
    axes.set_xlim(0, min(1.03, max(0.2, 0.05 + max(line.interval.high for line in lines))))
    axes.set_xlabel("held-out file F0.5 (mean; 95% interval over runs, repositories and issues; ○ one training run)")
    axes.grid(axis="x", color="#e3e3e3")
    axes.set_axisbelow(True)
    style.open_axes(axes, left=False)
    count = len(set(analysis.repositories))
    axes.set_title(
        f"{len(analysis.issues)} held-out issues of {count} {'repository' if count == 1 else 'repositories'}",
        loc="left",
        fontsize=10.5,
        fontweight="bold",
    )
    return figure


def _row_label(line: Retriever) -> str:
    if line.design:
        return f"{line.label} ({line.runs} run{'s' if line.runs > 1 else ''})"
    return f"{line.label} (has seen the gold files)" if line.oracle else line.label


def difference_figure(analysis: Analysis, margin: float = MARGIN) -> Figure | None:
    """Differences of held-out F0.5 between designs, with intervals and the margin that counts; None for one design."""
    if not analysis.primary:
        return None
    contrasts = list(reversed(analysis.primary))
    figure = style.blank(7.6, 1.35 + 0.42 * len(contrasts))
    axes = figure.add_subplot()
    axes.axvspan(-margin, margin, color="#eeeeee", lw=0)
    axes.axvline(0, color="#333333", lw=0.9)
    for place, contrast in enumerate(contrasts):
        d = contrast.result.difference
        sure = contrast.p_holm is not None and contrast.p_holm <= 0.05 and (d.low > 0 or d.high < 0)
        colour = style.COLOURS[0] if sure else GREY
        axes.plot([d.low, d.high], [place] * 2, color=colour, lw=2.4, alpha=0.55)
        axes.plot(d.estimate, place, "o", color=colour, mfc=colour if sure else "white", ms=7, mew=1.6)
        p = "one run: no claim" if contrast.p_holm is None else _p_text(contrast.p_holm)
        axes.annotate(
            f"{d.estimate:+.3f}, {p}".replace("-", "−"), (d.estimate, place), (0, 7), textcoords="offset points",
            ha="center", fontsize=8,
        )  # fmt: skip
    axes.set_yticks(range(len(contrasts)), [f"{c.a} − {c.b}" for c in contrasts])
    axes.set_ylim(-0.6, len(contrasts) - 0.3)
    widest = max(max(abs(c.result.difference.low), abs(c.result.difference.high), 1.5 * margin) for c in contrasts)
    axes.set_xlim(-1.15 * widest, 1.15 * widest)
    axes.set_xlabel(f"difference of mean held-out F0.5 (95% interval; grey: within ±{margin:g}; p after Holm)")
    axes.grid(axis="x", color="#e9e9e9")
    axes.set_axisbelow(True)
    style.open_axes(axes, left=False)
    axes.set_title("filled and blue: a claim can be made", loc="left", fontsize=9, color=GREY)
    return figure


def _p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
