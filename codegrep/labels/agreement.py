"""Agreement of two judges, and rates corrected for a judge's errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegrep.metrics.bootstrap import Interval, wilson

RESAMPLES = 10_000


@dataclass(frozen=True)
class Agreement:
    """Two judges on the same candidates; True is RELEVANT.

    Attributes:
        both, first_only, second_only, neither: how many each pair of answers occurs.
        kappa: Cohen's, with a percentile bootstrap interval over candidates. NaN where both always give one and the
            same answer (then chance agreement is 1).
    """

    both: int
    first_only: int
    second_only: int
    neither: int
    kappa: Interval

    @property
    def items(self) -> int:
        """Candidates."""
        return self.both + self.first_only + self.second_only + self.neither

    @property
    def observed(self) -> Interval:
        """Share of equal answers, with Wilson's interval."""
        return wilson(self.both + self.neither, self.items)


def agreement(
    first: Sequence[bool], second: Sequence[bool], *, resamples: int = RESAMPLES, level: float = 0.95, seed: int = 0
) -> Agreement:
    """Cohen's kappa of two judges.

    Raises:
        ValueError: no candidate, or lists of different length.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(f"two answers for each candidate are needed, got {len(first)} and {len(second)}")
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    table = np.array([(a & b).sum(), (a & ~b).sum(), (~a & b).sum(), (~a & ~b).sum()])
    # Drawing candidates with replacement is drawing the four cells of the table.
    draws = np.random.default_rng(seed).multinomial(len(a), table / len(a), size=resamples)
    kappas = _kappa(draws.astype(np.float64))
    kappas = kappas[np.isfinite(kappas)]
    estimate = float(_kappa(table[None].astype(np.float64))[0])
    low, high = np.quantile(kappas, [(1 - level) / 2, (1 + level) / 2]) if len(kappas) else (np.nan, np.nan)
    both, first_only, second_only, neither = (int(n) for n in table)
    return Agreement(
        both, first_only, second_only, neither, Interval(estimate, float(low), float(high), level, "percentile")
    )


def _kappa(cells: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(n,) kappas of (n, 4) tables: both, first only, second only, neither."""
    total = cells.sum(axis=1)
    observed = (cells[:, 0] + cells[:, 3]) / total
    first = (cells[:, 0] + cells[:, 1]) / total
    second = (cells[:, 0] + cells[:, 2]) / total
    chance = first * second + (1 - first) * (1 - second)
    with np.errstate(invalid="ignore", divide="ignore"):
        kappas: np.ndarray[tuple[int], np.dtype[np.float64]] = np.where(
            chance < 1, (observed - chance) / (1 - chance), np.nan
        )
    return kappas


@dataclass(frozen=True)
class Corrected:
    """A judge's share of RELEVANT, and what it says of the true share (Rogan and Gladen 1978).

    Attributes:
        observed: share that the judge calls RELEVANT.
        sensitivity, specificity: of the judge against the reference, with Wilson's interval.
        true: (observed + specificity − 1) / (sensitivity + specificity − 1), cut to [0, 1]; NaN where the judge is no
            better than chance, since then its answers say nothing of the true share.
    """

    observed: float
    sensitivity: Interval
    specificity: Interval
    true: float


def rogan_gladen(observed: float, judge: Sequence[bool], reference: Sequence[bool]) -> Corrected:
    """Correct a share by a sample that a reference (a person, a better judge) has judged too.

    Args:
        observed: share of RELEVANT that the judge gives to the whole set.
        judge, reference: answers on the sample.

    Raises:
        ValueError: the sample lacks relevant or irrelevant candidates, or the lists differ in length.
    """
    if len(judge) != len(reference):
        raise ValueError(f"two answers for each candidate are needed, got {len(judge)} and {len(reference)}")
    positives = [said for said, truth in zip(judge, reference, strict=True) if truth]
    negatives = [said for said, truth in zip(judge, reference, strict=True) if not truth]
    if not positives or not negatives:
        raise ValueError("the reference must call some candidates relevant and some irrelevant")
    sensitivity = wilson(sum(positives), len(positives))
    specificity = wilson(len(negatives) - sum(negatives), len(negatives))
    divisor = sensitivity.estimate + specificity.estimate - 1
    true = (observed + specificity.estimate - 1) / divisor if divisor > 0 else float("nan")
    return Corrected(observed, sensitivity, specificity, min(1.0, max(0.0, true)) if divisor > 0 else true)
