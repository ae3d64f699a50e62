"""Comparison of training designs, whose runs differ by seed: runs and issues are both samples.

A claim about a design ("v3 finds files better than v1") has to hold on other repositories and for other seeds. A test
over issues answers the first for the adapters that were trained, a test over runs the second for the issues at hand. A
claim needs both, so its p-value is the larger of the two (the intersection-union test; Berger 1982, Technometrics 24).
Scores are (runs, issues) matrices.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from codegrep.metrics.bootstrap import RESAMPLES, TIES, Interval, clustered_weights, permutation_test

Floats = NDArray[np.float64]
_FEW_REPOSITORIES = 8  # with fewer, the spread between repositories is a guess


@dataclass(frozen=True)
class Scores:
    """One retriever on one measure.

    Attributes:
        values: (runs, issues); one row a training run. No NaN.
        fixed: a retriever without training and seeds (BM25, a scripted search), about which one run is enough for a
            claim.
    """

    values: Floats
    fixed: bool = False

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim != 2 or 0 in values.shape:
            raise ValueError(f"a (runs, issues) matrix is needed, got shape {values.shape}")
        if not np.isfinite(values).all():
            raise ValueError("every run needs a finite value for every issue")
        object.__setattr__(self, "values", values)

    @property
    def runs(self) -> int:
        """Number of training runs."""
        return len(self.values)

    @property
    def run_means(self) -> Floats:
        """(runs,) means over issues."""
        means: Floats = self.values.mean(axis=1)
        return means

    @property
    def by_issue(self) -> Floats:
        """(issues,) means over runs."""
        means: Floats = self.values.mean(axis=0)
        return means


@dataclass(frozen=True)
class Variance:
    """Variance of a mean, or of a difference of means, by its source.

    Attributes:
        runs: training again with other seeds; 0 where a design has one run, since nothing is known then.
        issues: other repositories and issues.
    """

    runs: float
    issues: float

    @property
    def total(self) -> float:
        """Sum of both."""
        return self.runs + self.issues


@dataclass(frozen=True)
class DesignComparison:
    """Retriever a against retriever b.

    Attributes:
        difference: mean of a - b and its interval, over runs, repositories and issues.
        p_issues: paired permutation test over repositories: the trained adapters on other repositories.
        p_issues_floor: the smallest value that p_issues can have with so many repositories.
        p_runs: Welch's t test on the means of runs: other seeds on the same issues. None where a design has one run.
        p_runs_exact: exact permutation of runs between the two; never below 2 / C(runs_a + runs_b, runs_a).
        p_runs_floor: that bound.
        better, equal, worse: issues on which a is better, equal or worse, scores averaged over runs.
        variance: of the difference.
    """

    difference: Interval
    p_issues: float
    p_issues_floor: float
    p_runs: float | None
    p_runs_exact: float | None
    p_runs_floor: float | None
    better: int
    equal: int
    worse: int
    variance: Variance

    @property
    def p_claim(self) -> float | None:
        """The larger of both p-values; None where one run cannot support a claim about its design."""
        return None if self.p_runs is None else max(self.p_issues, self.p_runs)


def mean_interval(
    scores: Scores, repositories: Sequence[str], *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> Interval:
    """Return the interval of a retriever's mean: runs, repositories and the issues within them are all resampled.

    Args:
        scores: of the retriever.
        repositories: (issues,) of each issue.
        seed: of the draws.
        resamples: number of draws.
        level: confidence level in (0, 1).

    Raises:
        ValueError: wrong shapes.
    """
    zero = Scores(np.zeros((1, scores.values.shape[1])), fixed=True)
    return _interval(scores, zero, repositories, seed, resamples, level)


def compare_designs(
    a: Scores,
    b: Scores,
    repositories: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> DesignComparison:
    """Compare two retrievers that were measured on the same issues, in the same order.

    Runs of a and b are not paired: runs of one seed share little but the warm start.

    Raises:
        ValueError: not the same number of issues.
    """
    if a.values.shape[1] != b.values.shape[1] or a.values.shape[1] != len(repositories):
        raise ValueError("both retrievers and the repositories must cover the same issues")
    differences = a.by_issue - b.by_issue
    units = len(set(repositories))
    better, worse = int((differences > TIES).sum()), int((differences < -TIES).sum())
    p_runs = p_exact = floor = None
    if (a.fixed or a.runs > 1) and (b.fixed or b.runs > 1):
        p_runs, p_exact, floor = _over_runs(a, b)
    return DesignComparison(
        difference=_interval(a, b, repositories, seed, resamples, level),
        p_issues=permutation_test(differences, seed=seed, resamples=resamples, clusters=repositories),
        p_issues_floor=max(2.0 ** (1 - units), 1 / (1 + resamples)),
        p_runs=p_runs,
        p_runs_exact=p_exact,
        p_runs_floor=floor,
        better=better,
        equal=len(differences) - better - worse,
        worse=worse,
        variance=Variance(_run_variance(a) + _run_variance(b), _issue_variance(differences, repositories)),
    )


def _over_runs(a: Scores, b: Scores) -> tuple[float, float | None, float | None]:
    """Return Welch's p, the exact permutation p and its floor; two fixed retrievers have no runs to test."""
    if a.fixed and b.fixed:
        return 0.0, None, None
    if a.fixed or b.fixed:  # runs of one design around a constant
        runs, constant = (b, a) if a.fixed else (a, b)
        return _t_test(runs.run_means, float(constant.run_means[0])), None, None
    means_a, means_b = a.run_means, b.run_means
    exact = float(
        stats.permutation_test(
            (means_a, means_b), _mean_difference, permutation_type="independent", n_resamples=10_000, rng=0
        ).pvalue
    )
    floor = 2 / math.comb(a.runs + b.runs, a.runs)
    if np.ptp(means_a) < TIES and np.ptp(means_b) < TIES:  # all runs alike: no spread to test against
        return (1.0 if abs(means_a[0] - means_b[0]) < TIES else exact), exact, floor
    with _without_precision_warning():
        return float(stats.ttest_ind(means_a, means_b, equal_var=False).pvalue), exact, floor


def _t_test(means: Floats, constant: float) -> float:
    if np.ptp(means) < TIES:
        return 1.0 if abs(means[0] - constant) < TIES else 2.0 ** (1 - len(means))
    with _without_precision_warning():
        return float(stats.ttest_1samp(means, constant).pvalue)


def _without_precision_warning() -> warnings.catch_warnings[None]:
    """Silence SciPy's warning of lost precision where one side hardly varies; the p-value is right all the same."""
    return warnings.catch_warnings(action="ignore", category=RuntimeWarning)


def _mean_difference(x: Floats, y: Floats, axis: int) -> Floats:
    difference: Floats = np.mean(x, axis=axis) - np.mean(y, axis=axis)
    return difference


def _interval(a: Scores, b: Scores, repositories: Sequence[str], seed: int, resamples: int, level: float) -> Interval:
    """Return the percentile interval of mean(a) - mean(b); runs of each side and issues are drawn independently.

    A design's runs are first moved apart by sqrt(k / (k - 1)): resampling k runs gives only (k - 1) / k of the variance
    of k new ones, a third too little for three.
    """
    generator = np.random.default_rng(seed)
    estimate = float(a.by_issue.mean() - b.by_issue.mean())
    means = np.empty(resamples)
    start = 0
    for weights in clustered_weights(repositories, resamples, generator):  # (block, issues), rows sum to 1
        drawn = _drawn_runs(a, len(weights), generator) - _drawn_runs(b, len(weights), generator)
        means[start : start + len(weights)] = (drawn * weights).sum(axis=1)
        start += len(weights)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    alone = (a.runs == 1 and not a.fixed) or (b.runs == 1 and not b.fixed)
    method = "repositories and issues" if alone or (a.fixed and b.fixed) else "runs, repositories and issues"
    return Interval(estimate, float(low), float(high), level, method)


def _drawn_runs(scores: Scores, draws: int, generator: np.random.Generator) -> Floats:
    """Return (draws, issues) means over runs drawn with replacement."""
    if scores.runs == 1:
        return np.broadcast_to(scores.values[0], (draws, scores.values.shape[1]))
    centre = scores.by_issue
    apart = centre + (scores.values - centre) * math.sqrt(scores.runs / (scores.runs - 1))
    picked = generator.multinomial(scores.runs, np.full(scores.runs, 1 / scores.runs), size=draws) / scores.runs
    means: Floats = picked @ apart
    return means


def _run_variance(scores: Scores) -> float:
    """Return the variance of a design's mean over runs, from the spread of its runs' means."""
    return 0.0 if scores.fixed or scores.runs < 2 else float(np.var(scores.run_means, ddof=1)) / scores.runs


def _issue_variance(differences: Floats, repositories: Sequence[str]) -> float:
    """Return the cluster-robust variance of a mean over issues (Liang and Zeger 1986), corrected for few clusters.

    Repositories are the clusters; the issues of a single repository count as independent.
    """
    units = np.unique(np.asarray(repositories), return_inverse=True)[1]
    count, n = int(units.max()) + 1, len(differences)
    if n < 2:
        return 0.0
    rest = differences - differences.mean()
    if count < 2:
        return float(np.var(rest, ddof=1)) / n
    sums = np.bincount(units, weights=rest)
    return float((sums**2).sum()) / n**2 * count / (count - 1)


def runs_needed(variance: Variance, runs: int, difference: float, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the runs a design that would show a true difference on these issues; inf where no number would.

    Args:
        variance: of the difference, measured with `runs` runs a design.
        runs: of each design.
        difference: to be found; its sign does not matter.
        power: probability of showing it.
        alpha: two-sided level.
    """
    left = _needed_variance(difference, power, alpha) - variance.issues
    return max(2.0, variance.runs * runs / left) if left > 0 else math.inf


def repositories_needed(
    variance: Variance, repositories: int, difference: float, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the held-out repositories like these that would show a true difference with these runs; may be inf."""
    left = _needed_variance(difference, power, alpha) - variance.runs
    return max(float(least_repositories(alpha)), variance.issues * repositories / left) if left > 0 else math.inf


def detectable(variance: Variance, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the smallest true difference that data like these would show with this power."""
    return _reach(power, alpha) * math.sqrt(variance.total)


def least_repositories(alpha: float = 0.05) -> int:
    """Return the fewest repositories with which flipping signs by repository can reach alpha: 6 for 0.05."""
    return math.ceil(1 - math.log2(alpha))


def few_repositories(repositories: int, comparisons: int, *, alpha: float = 0.05) -> list[str]:
    """Return sentences on what held-out issues of so few repositories cannot show; none where there are enough.

    Args:
        repositories: number of held-out repositories.
        comparisons: of one family, for Holm's correction.
        alpha: two-sided level.
    """
    if repositories == 1:
        return [
            "All issues are of one repository: intervals and tests resample its issues, and say nothing about other "
            "repositories."
        ]
    sentences = []
    if repositories < _FEW_REPOSITORIES:
        sentences.append(
            f"{repositories} repositories are few: how much repositories differ is itself uncertain then, and the "
            "intervals are rough."
        )
    floor = 2.0 ** (1 - repositories)
    lowest = floor * max(1, comparisons)
    if lowest > alpha:
        corrected = f", after Holm's correction of {comparisons} comparisons below {min(1.0, lowest):.3f}"
        sentences.append(
            f"With {repositories} repositories no p-value can get below {floor:.3f}{corrected * (comparisons > 1)}: no "
            f"difference can be shown at the {100 * alpha:.0f} % level, whatever its size."
        )
    return sentences


def _needed_variance(difference: float, power: float, alpha: float) -> float:
    return (difference / _reach(power, alpha)) ** 2


def _reach(power: float, alpha: float) -> float:
    """Return the standard errors between 0 and a difference found with this power (normal approximation)."""
    return float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power))
