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
        partial: only some issues have it; it is compared on those that every run of every design has it on.
        claims: whether designs are set against each other on it.
    """

    column: str
    label: str
    better: str
    digits: int = 3
    share: bool = False
    partial: bool = False
    claims: bool = True

    def text(self, value: float | None, signed: bool = False) -> str:
        """Return a value as it is printed; a dash for none."""
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
    Measure("f05_mined", "F0.5, mined targets", "higher", partial=True),
    Measure("line_f05", "lines, F0.5", "higher", partial=True),
    Measure("class_f1", "classes, F1", "higher", partial=True),
    Measure("function_f1", "functions, F1", "higher", partial=True),
    # Of blocks of issues that were answered together: it has no value for one issue, and says how busy a machine was.
    Measure("seconds_per_issue", "seconds an issue, throughput", "", 2, claims=False),
    Measure("latency_seconds", "seconds alone, latency", "lower", 2, partial=True),
)
PRIMARY = MEASURES[0]
_BY_COLUMN = {measure.column: measure for measure in MEASURES}


def measure(column: str) -> Measure:
    """Return the measure of that column."""
    return _BY_COLUMN[column]
