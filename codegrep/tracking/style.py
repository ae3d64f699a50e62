"""What all figures share: colours, sizes, axes without a box. Drawn without pyplot: no global state, no display."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Okabe and Ito (2008): told apart with every common kind of colour blindness; order of use.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#6b6b6b"


def blank(width: float, height: float) -> Figure:
    """Return an empty figure, inches."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def colour(number: int) -> str:
    """Return the colour of the n-th thing, counted from 0."""
    return COLOURS[number % len(COLOURS)]


def open_axes(axes: Axes, left: bool) -> None:
    """Axes without a box."""
    for side in ("top", "right") if left else ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if not left:
        axes.tick_params(axis="y", length=0)
