"""Weights of candidates over a whole set, in two passes (CodeGrep 3.4 stage 3; LRAT eq 1-3).

    β = median of l       w̃(l) = 1 − exp(−ln2 · l / β)       μ = mean of w̃       w(l) = w̃(l) / μ

The first pass leaves a histogram of lengths. Histograms of shards are added, so β and μ are those of the whole set,
exact, and the same in whatever order shards come.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Weighting:
    """β and μ of a set.

    Attributes:
        beta: half-life, tokens: the weight before normalising is 0.5 at this length.
        mean: mean of the weights before normalising.
        candidates: how many lengths they were taken from.
    """

    beta: float
    mean: float
    candidates: int

    def weight(self, tokens: int) -> float:
        """W of a length; 0 where there is no text. The mean over the set is 1.

        LRAT's code gives 1.0 to a missing length; here no text is no evidence, and it never reaches a target anyway.
        """
        return raw_weight(tokens, self.beta) / self.mean if tokens > 0 and self.mean > 0 else 0.0

    def shortest(self, threshold: float) -> float:
        """Return the length in tokens at which w reaches a threshold; infinite where no length does."""
        share = threshold * self.mean
        return -self.beta * math.log1p(-share) / math.log(2) if share < 1 else math.inf


def raw_weight(tokens: float, beta: float) -> float:
    """w̃ = 1 − exp(−ln2 · l / β); with β = 0 its limit, 1 for any text."""
    if beta <= 0:
        return float(tokens > 0)
    return -math.expm1(-math.log(2) * tokens / beta)


def weighting(histogram: Mapping[int, int], *, with_empty: bool = False) -> Weighting:
    """β and μ from counts by length.

    Args:
        with_empty: lengths of 0 are in both, as CodeGrep writes (3.4: over all mined candidates); else they are left
            out, as in LRAT's code: a missing text says nothing of how long texts are.
    """
    lengths = sorted((n, count) for n, count in histogram.items() if (n > 0 or with_empty) and count > 0)
    total = sum(count for _, count in lengths)
    if not total:
        return Weighting(beta=1.0, mean=1.0, candidates=0)
    beta = (_at(lengths, (total - 1) // 2) + _at(lengths, total // 2)) / 2
    mean = math.fsum(count * raw_weight(length, beta) for length, count in lengths) / total
    return Weighting(beta, mean, total)


def merged(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the sum of several histograms, by length."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(sorted(total.items()))


def _at(lengths: list[tuple[int, int]], place: int) -> int:
    """Return the length at a place of the sorted lengths, from 0."""
    seen = 0
    for length, count in lengths:
        seen += count
        if place < seen:
            return length
    raise IndexError(place)
