"""Paired comparison of retrievers on the same issues: intervals, permutation test, correction for many comparisons.

The unit is the repository, since issues of one repository are alike, or the issue where there is one repository only.
Bootstrap and permutation (Smucker et al. 2007) both resample units, so n is the number of units, never of seeds:
`mean_over_seeds` comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

RESAMPLES = 10_000
TIES = 1e-12  # sums of the same numbers in another order differ by rounding
_BLOCK = 4_000_000  # numbers drawn at once, 32 MB
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval. method: how the interval was made."""

    estimate: float
    low: float
    high: float
    level: float
    method: str


@dataclass(frozen=True)
class Comparison:
    """Retriever a against retriever b on the same issues.

    Attributes:
        issues: number of issues.
        difference: mean of a - b over issues, with its bootstrap interval.
        p_value: two-sided paired permutation test of no difference.
        better, equal, worse: number of issues on which a is better, equal or worse than b.
    """

    issues: int
    difference: Interval
    p_value: float
    better: int
    equal: int
    worse: int


def compare(
    a: Mapping[str, float],
    b: Mapping[str, float],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    repositories: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare two retrievers on one metric.

    Args:
        a, b: value by instance_id (mean over seeds, where there are several).
        seed: of the draws.
        resamples: of bootstrap and permutation.
        repositories: repository by instance_id; None takes issues as units.

    Raises:
        ValueError: the two were not measured on the same issues.
    """
    if a.keys() != b.keys():
        apart = sorted(a.keys() ^ b.keys())
        raise ValueError(f"not measured on the same issues: {len(apart)} have one value only, the first is {apart[0]}")
    issues = sorted(a)  # the order of the dictionaries must not change the draws
    differences = np.array([a[issue] - b[issue] for issue in issues], dtype=np.float64)
    clusters = None if repositories is None else [repositories[issue] for issue in issues]
    better, worse = int((differences > TIES).sum()), int((differences < -TIES).sum())
    return Comparison(
        issues=len(issues),
        difference=bootstrap_mean(differences, seed=seed, resamples=resamples, clusters=clusters),
        p_value=permutation_test(differences, seed=seed, resamples=resamples, clusters=clusters),
        better=better,
        equal=len(issues) - better - worse,
        worse=worse,
    )


def bootstrap_mean(
    values: ArrayLike,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    clusters: Sequence[str] | None = None,
) -> Interval:
    """Return the percentile bootstrap interval of a mean over issues.

    Args:
        values: (n,) one number an issue.
        seed: of the draws; the same seed gives the same interval.
        resamples: number of draws.
        level: confidence level in (0, 1).
        clusters: (n,) repository of each issue for a two-stage bootstrap (repositories, then issues within them); None
            draws single issues. With fewer than about ten repositories the interval is itself uncertain.

    Raises:
        ValueError: no values, or NaN among them.
    """
    numbers = _vector(values)
    units = [str(n) for n in range(len(numbers))] if clusters is None else clusters
    draws = clustered_weights(units, resamples, np.random.default_rng(seed))
    low, high = np.quantile(
        np.concatenate([weights @ numbers for weights in draws]), [(1 - level) / 2, (1 + level) / 2]
    )
    return Interval(
        float(numbers.mean()), float(low), float(high), level, "percentile" if clusters is None else "two-stage"
    )


def permutation_test(
    differences: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES, clusters: Sequence[str] | None = None
) -> float:
    """Return the two-sided p-value of a mean difference of 0, by random flips of the signs of paired differences.

    All flips are enumerated where that is no more than `resamples`; else p = (1 + #extreme) / (1 + resamples).

    Args:
        differences: (n,) a - b for each issue.
        seed: of the draws.
        resamples: number of draws.
        clusters: (n,) repository of each issue: its differences are flipped together.

    Raises:
        ValueError: no values, or NaN among them.
    """
    sums = _vector(differences)
    if clusters is not None:
        repository = np.unique(np.asarray(clusters), return_inverse=True)[1]
        sums = np.bincount(repository, weights=sums).astype(np.float64)
    if len(sums) == 1:
        return 1.0  # both signs are as extreme; SciPy needs two observations
    result = stats.permutation_test(
        (sums,),
        lambda flipped, axis: np.abs(flipped.sum(axis=axis)),
        permutation_type="samples",
        alternative="greater",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, _BLOCK // len(sums)),
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def clustered_weights(clusters: Sequence[str], resamples: int, generator: np.random.Generator) -> Iterator[Floats]:
    """Yield draws of issues in two stages: clusters with replacement, then issues within each drawn cluster.

    A mean over a draw is over all of its issues, so a large repository weighs as much as its issues, as in the plain
    mean.

    Args:
        clusters: (n,) repository of each issue.
        resamples: rows over all blocks.
        generator: of the draws.

    Yields:
        Blocks of (b, n) weights; each row sums to 1.
    """
    labels, members = np.unique(np.asarray(clusters), return_inverse=True)
    sizes = np.bincount(members)
    step = max(1, _BLOCK // len(members))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        times = generator.multinomial(len(labels), np.full(len(labels), 1 / len(labels)), size=rows)
        weights = times[:, members].astype(np.float64)
        for cluster in np.flatnonzero(sizes > 1):
            # A cluster that was drawn k times gives k * size draws of its issues.
            size = sizes[cluster]
            weights[:, members == cluster] = generator.multinomial(
                times[:, cluster] * size, np.full(size, 1 / size), size=rows
            )
        yield weights / weights.sum(axis=1, keepdims=True)


def mean_over_seeds(values: ArrayLike) -> Floats:
    """Return (issues,) means of an (issues, seeds) matrix. NaN is a seed that is missing for an issue.

    Raises:
        ValueError: not a matrix, or an issue without any seed.
    """
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f"an (issues, seeds) matrix is needed, got shape {matrix.shape}")
    if np.isnan(matrix).all(axis=1).any():
        raise ValueError(f"issue {int(np.isnan(matrix).all(axis=1).argmax())} has no value for any seed")
    means: Floats = np.nanmean(matrix, axis=1)
    return means


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return Holm's adjusted p-values of one family of comparisons, by name, in the order given; reject where <= alpha.

    Raises:
        ValueError: a p-value outside [0, 1].
    """
    if any(not 0.0 <= p <= 1.0 for p in p_values.values()):
        raise ValueError(f"p-values must lie in [0, 1]: {dict(p_values)}")
    adjusted: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def wilson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return the Wilson score interval of a share.

    Raises:
        ValueError: n is not positive, or successes outside [0, n].
    """
    interval = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    return Interval(successes / n, float(interval.low), float(interval.high), level, "wilson")


def _vector(values: ArrayLike) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(f"one number for each issue is needed, got shape {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"value {int((~np.isfinite(numbers)).argmax())} is not a finite number")
    return numbers
