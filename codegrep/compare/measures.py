"""What is compared on the held-out issues. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One column of the per-issue table.

    Attributes:
        column: in the table.
        label: for people.
        better: "higher", "lower", or "" where neither is.
        digits: after the point.
        share: printed in per cent.
    """

    column: str
    label: str
    better: str
    digits: int = 3
    share: bool = False

    def text(self, value: float | None, signed: bool = False) -> str:
        """A value as it is printed; a dash for none."""
        if value is None:
            return "–"
        if self.share:
            return f"{100 * value:{'+' if signed else ''}.1f} %".replace("-", "−")
        return f"{value:{'+' if signed else ''},.{self.digits}f}".replace("-", "−")


# The primary measure comes first: claims are made about it, the others say where a difference lies.
MEASURES = (
    Measure("f05", "F0.5", "higher"),
    Measure("f05_top1", "F0.5, first file", "higher"),
    Measure("precision", "precision", "higher"),
    Measure("recall", "recall", "higher"),
    Measure("good", "F0.5 ≥ 0.8", "higher", share=True),
    Measure("files", "files", "", 2),
    Measure("turns", "turns", "lower", 1),
    Measure("calls", "tool calls", "lower", 1),
    Measure("generated_tokens", "sampled tokens", "lower", 0),
    Measure("seconds", "seconds an issue", "lower", 2),
)
PRIMARY = MEASURES[0]
_BY_COLUMN = {measure.column: measure for measure in MEASURES}


def measure(column: str) -> Measure:
    """The measure of that column."""
    return _BY_COLUMN[column]
