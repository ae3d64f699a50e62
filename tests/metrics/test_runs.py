"""Designs compared over runs and repositories: hand-worked values, and what must hold for any numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegrep.metrics.bootstrap import clustered_weights
from codegrep.metrics.runs import (
    Scores,
    Variance,
    compare_designs,
    detectable,
    least_repositories,
    mean_interval,
    repositories_needed,
    runs_needed,
)

REPOSITORIES = ["a", "a", "b", "b", "c", "c", "d", "d", "e", "e", "f", "f"]


def constant(*runs: float, fixed: bool = False) -> Scores:
    return Scores(np.array([[run] * len(REPOSITORIES) for run in runs]), fixed)


def test_one_run_supports_no_claim():
    found = compare_designs(constant(0.9), constant(0.1, 0.1, 0.1), REPOSITORIES)
    assert found.p_claim is None and found.p_runs is None
    assert found.difference.estimate == pytest.approx(0.8)
    assert found.difference.method == "repositories and issues"  # nothing is known about other runs
    assert found.variance.runs == 0


def test_three_runs_against_three_by_hand():
    """Means .5 .6 .7 against .1 .2 .3: t = .4 / sqrt(.01/3 + .01/3) = 4.899, 4 degrees of freedom, p = .0080."""
    found = compare_designs(constant(0.5, 0.6, 0.7), constant(0.1, 0.2, 0.3), REPOSITORIES)
    assert found.p_runs == pytest.approx(0.00805, abs=1e-4)
    assert found.p_runs_exact == pytest.approx(2 / 20) and found.p_runs_floor == pytest.approx(2 / 20)
    assert found.p_issues == pytest.approx(2 / 64) and found.p_issues_floor == pytest.approx(2 / 64)
    assert found.p_claim == pytest.approx(2 / 64)  # the larger of the two
    assert (found.better, found.equal, found.worse) == (12, 0, 0)
    assert found.variance.runs == pytest.approx(0.01 / 3 + 0.01 / 3)
    assert found.variance.issues == pytest.approx(0.0, abs=1e-12)


def test_a_difference_that_hangs_on_one_repository_is_no_claim():
    values = np.zeros((3, 12))
    values[:, :2] = 1.0
    found = compare_designs(Scores(values), Scores(np.zeros((3, 12))), REPOSITORIES)
    assert found.p_issues == 1.0  # either sign of repository a gives as large a mean
    assert found.difference.low == 0.0


def test_against_a_retriever_without_seeds_the_runs_are_tested_around_its_mean():
    """Means .4 .5 .6 around .2: t = .3 / (.1 / sqrt 3) = 5.196, 2 degrees of freedom, p = .0351."""
    found = compare_designs(constant(0.4, 0.5, 0.6), constant(0.2, fixed=True), REPOSITORIES)
    assert found.p_runs == pytest.approx(0.0351, abs=1e-4) and found.p_runs_exact is None
    fixed = compare_designs(constant(0.4, fixed=True), constant(0.2, fixed=True), REPOSITORIES)
    assert fixed.p_runs == 0.0 and fixed.p_claim == fixed.p_issues


def test_runs_that_are_all_alike_cannot_be_tested_by_their_spread():
    same = compare_designs(constant(0.5, 0.5, 0.5), constant(0.5, 0.5, 0.5), REPOSITORIES)
    assert same.p_runs == 1.0 and same.p_claim == 1.0
    apart = compare_designs(constant(0.5, 0.5, 0.5), constant(0.4, 0.4, 0.4), REPOSITORIES)
    assert apart.p_runs == pytest.approx(0.1)  # only the exact test is left


@pytest.mark.filterwarnings("error")
def test_runs_that_are_alike_but_for_rounding_are_no_warning_on_the_terminal():
    found = compare_designs(constant(2.0, 2.0, 2.0 + 4e-16), constant(2.0, 2.1, 2.3), REPOSITORIES)
    assert found.p_runs is not None and 0.2 < found.p_runs < 0.4


def test_seeds_widen_the_interval():
    """The spread of three runs, .5 .6 .7, with its small-number correction: sd of the drawn mean is .1 / sqrt 3."""
    alone = mean_interval(constant(0.6), REPOSITORIES)
    seeds = mean_interval(constant(0.5, 0.6, 0.7), REPOSITORIES)
    assert (alone.low, alone.high) == pytest.approx((0.6, 0.6))
    assert seeds.low < 0.51 and seeds.high > 0.69
    assert seeds.method == "runs, repositories and issues"


def test_repositories_widen_the_interval():
    values = np.array([[float(repository in "abc") for repository in REPOSITORIES]])
    by_repository = mean_interval(Scores(values, fixed=True), REPOSITORIES)
    by_issue = mean_interval(Scores(values, fixed=True), [str(n) for n in range(12)])
    assert by_repository.high - by_repository.low > by_issue.high - by_issue.low


def test_the_cluster_robust_variance_by_hand():
    """Differences 1 1 | 0 0, mean .5: sums of deviations 1, -1; (1 + 1) / 16 x 2/1 = .25."""
    found = compare_designs(
        Scores(np.array([[1.0, 1.0, 0.0, 0.0]]), True), Scores(np.zeros((1, 4)), True), ["a", "a", "b", "b"]
    )
    assert found.variance.issues == pytest.approx(0.25)


def test_weights_are_draws_of_whole_repositories():
    (weights,) = clustered_weights(["a", "a", "b"], 5000, np.random.default_rng(0))
    assert weights.sum(axis=1) == pytest.approx(np.ones(5000))
    only_b = (weights[:, 2] == 1.0).mean()
    assert only_b == pytest.approx(0.25, abs=0.02)  # b drawn twice of two
    assert weights.mean(axis=0)[0] == pytest.approx(weights.mean(axis=0)[1], abs=0.01)


def test_what_is_needed_by_hand():
    """(z.975 + z.8)^2 = 7.849. To find .1: variance .01 / 7.849 = .001274."""
    variance = Variance(runs=0.004, issues=0.0004)
    assert runs_needed(variance, 3, 0.1) == pytest.approx(0.004 * 3 / (0.001274 - 0.0004), rel=1e-3)
    assert math.isinf(runs_needed(Variance(0.004, 0.002), 3, 0.1))  # the issues alone are too few
    assert repositories_needed(Variance(0.0002, 0.004), 7, -0.1) == pytest.approx(0.004 * 7 / 0.001074, rel=1e-3)
    assert math.isinf(repositories_needed(variance, 7, 0.1))
    assert detectable(variance) == pytest.approx(2.8016 * math.sqrt(0.0044), rel=1e-4)
    assert least_repositories() == 6 and 2.0 ** (1 - 6) < 0.05 < 2.0 ** (1 - 5)


@pytest.mark.parametrize("values", [[[]], [1.0], [[1.0, math.nan]]])
def test_scores_must_be_a_full_matrix(values):
    with pytest.raises(ValueError):
        Scores(np.array(values))


def test_different_issues_are_refused():
    with pytest.raises(ValueError, match="same issues"):
        compare_designs(Scores(np.zeros((1, 3))), Scores(np.zeros((1, 4))), ["a"] * 4)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 4), st.integers(1, 8))
def test_turning_a_comparison_round_turns_the_difference_only(seed, runs_a, runs_b, repositories):
    draw = np.random.default_rng(seed)
    where = [str(n % repositories) for n in range(12)]
    a, b = Scores(draw.random((runs_a, 12))), Scores(draw.random((runs_b, 12)))
    one, other = (compare_designs(x, y, where, resamples=200) for x, y in ((a, b), (b, a)))
    assert one.difference.estimate == pytest.approx(-other.difference.estimate)
    assert one.p_issues == pytest.approx(other.p_issues)
    assert (one.better, one.worse) == (other.worse, other.better)
    assert (one.p_runs is None) == (min(runs_a, runs_b) == 1)
    if one.p_runs is not None and one.p_runs_floor is not None:
        assert one.p_runs == pytest.approx(other.p_runs)
        assert one.p_runs_exact >= one.p_runs_floor - 1e-9
    assert one.difference.low <= one.difference.estimate <= one.difference.high or runs_a * runs_b > 1
