"""Paired comparison of retrievers on the same issues: intervals, permutation test, correction for many comparisons.

The unit is the issue, or the repository where issues of one repository are alike. Bootstrap and permutation are primary
(Smucker et al. 2007). Both resample units, so n is the number of units, never of seeds: `mean_over_seeds` comes first.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from codegrep.metrics.resampling import clustered_means, every_sign, flipped_means, random_signs, resampled_means

RESAMPLES = 10_000
Method = Literal["percentile", "bca"]
Floats = NDArray[np.float64]
_TIES = 1e-12  # sums of the same numbers in another order differ by rounding


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


def mean_over_seeds(values: ArrayLike) -> Floats:
    """(issues,) means of an (issues, seeds) matrix. NaN is a seed that is missing for an issue, and is left out.

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


def bootstrap_mean(
    values: ArrayLike,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    method: Method = "percentile",
    clusters: Sequence[str] | None = None,
) -> Interval:
    """Bootstrap interval of a mean over issues.

    Args:
        values: (n,) one number an issue.
        seed: of the draws; the same seed gives the same interval.
        resamples: B.
        level: confidence level in (0, 1).
        method: "percentile", or "bca" (SciPy's bias-corrected and accelerated one; issues only, no clusters).
            Equal values have no spread to correct by: then it falls back to percentile, and Interval.method says so.
        clusters: (n,) repository of each issue for a two-stage bootstrap (repositories, then issues within them). With
            fewer than about ten repositories such an interval is itself uncertain; with one it is the plain bootstrap.

    Raises:
        ValueError: no values, NaN among them, a wrong level, or clusters that do not fit.
    """
    numbers = _vector(values)
    _check(resamples, level)
    if method not in ("percentile", "bca"):
        raise ValueError(f"method must be 'percentile' or 'bca', got {method!r}")
    estimate = float(numbers.mean())
    generator = np.random.default_rng(seed)
    if clusters is not None:
        if len(clusters) != len(numbers):
            raise ValueError(f"{len(clusters)} clusters for {len(numbers)} values")
        if method == "bca":
            raise ValueError("bca is for single issues; use method='percentile' with clusters")
        return _percentile(estimate, clustered_means(numbers, clusters, resamples, generator), level, "two-stage")
    if method == "bca" and len(numbers) > 1 and numbers.min() < numbers.max():
        low, high = _bca(numbers, resamples, level, generator)
        if math.isfinite(low) and math.isfinite(high):
            return Interval(estimate, low, high, level, "bca")
    return _percentile(estimate, resampled_means(numbers, resamples, generator), level, "percentile")


def permutation_test(
    differences: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES, clusters: Sequence[str] | None = None
) -> float:
    """Two-sided p-value of a mean difference of 0, by random flips of the signs of paired differences.

    All flips are gone through where that is no more than `resamples`; else p = (1 + #extreme) / (1 + resamples).

    Args:
        differences: (n,) a - b for each issue.
        clusters: (n,) repository of each issue: its differences are flipped together.

    Raises:
        ValueError: no values, NaN among them, or clusters that do not fit.
    """
    numbers = _vector(differences)
    _check(resamples, 0.5)
    units = np.arange(len(numbers))
    if clusters is not None:
        if len(clusters) != len(numbers):
            raise ValueError(f"{len(clusters)} clusters for {len(numbers)} values")
        units = np.unique(np.asarray(clusters), return_inverse=True)[1]
    count = int(units.max()) + 1
    exact = count < 60 and 2**count <= resamples
    signs = every_sign(count) if exact else random_signs(count, resamples, np.random.default_rng(seed))
    limit = abs(float(numbers.mean())) - _TIES
    extreme = sum(int((np.abs(means) >= limit).sum()) for means in flipped_means(numbers, units, signs))
    return extreme / 2**count if exact else (1 + extreme) / (1 + resamples)


def compare(
    a: Mapping[str, float],
    b: Mapping[str, float],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    method: Method = "percentile",
    repositories: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare two retrievers on one metric.

    Args:
        a, b: value by instance_id (mean over seeds, where there are several).
        repositories: repository by instance_id: bootstrap and permutation then take repositories as units.

    Raises:
        ValueError: the two were not measured on the same issues.
    """
    if a.keys() != b.keys():
        apart = sorted(a.keys() ^ b.keys())
        raise ValueError(f"not measured on the same issues: {len(apart)} have one value only, the first is {apart[0]}")
    issues = sorted(a)  # the order of the dictionaries must not change the draws
    differences = np.array([a[issue] - b[issue] for issue in issues], dtype=np.float64)
    clusters = None if repositories is None else [repositories[issue] for issue in issues]
    better = int((differences > _TIES).sum())
    worse = int((differences < -_TIES).sum())
    return Comparison(
        issues=len(issues),
        difference=bootstrap_mean(
            differences, seed=seed, resamples=resamples, level=level, method=method, clusters=clusters
        ),
        p_value=permutation_test(differences, seed=seed, resamples=resamples, clusters=clusters),
        better=better,
        equal=len(issues) - better - worse,
        worse=worse,
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p-values of one family of comparisons, by name, in the order given; reject where <= alpha.

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


def wilson(successes: float, n: int, level: float = 0.95) -> Interval:
    """Wilson score interval of a share, for shares of issues such as F >= 0.8.

    Args:
        successes: count; may be a fraction where it is a mean over seeds.

    Raises:
        ValueError: n is not positive, or successes outside [0, n].
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is no share")
    _check(1, level)
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # Exactly 0 and 1 at the ends, where rounding would leave 1e-17.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(share, low, high, level, "wilson")


def _bca(numbers: Floats, resamples: int, level: float, generator: np.random.Generator) -> tuple[float, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # degenerate data give NaN, which the caller looks for
        result = stats.bootstrap(
            (numbers,),
            np.mean,
            n_resamples=resamples,
            batch=max(1, 4_000_000 // len(numbers)),
            vectorized=True,
            confidence_level=level,
            method="BCa",
            rng=generator,
        )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _percentile(estimate: float, means: Floats, level: float, method: str) -> Interval:
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level, method)


def _vector(values: ArrayLike) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(f"one number for each issue is needed, got shape {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"value {int((~np.isfinite(numbers)).argmax())} is not a finite number")
    return numbers


def _check(resamples: int, level: float) -> None:
    if resamples < 1 or not 0 < level < 1:
        raise ValueError(f"resamples must be positive and level in (0, 1), got {resamples} and {level}")
