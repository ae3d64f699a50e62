"""Intervals and tests against SciPy, against values worked by hand, and by their properties."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegrep.metrics.bootstrap import (
    bootstrap_mean,
    clustered_weights,
    compare,
    holm,
    mean_over_seeds,
    permutation_test,
    wilson,
)

finite = st.floats(-1, 1, allow_subnormal=False)
vectors = st.lists(finite, min_size=1, max_size=20)
quick = settings(max_examples=30, deadline=None)


def sample(n: int = 80, shift: float = 0.1) -> np.ndarray:
    return np.random.default_rng(1).normal(shift, 0.4, n)


def test_percentile_interval_agrees_with_the_normal_one() -> None:
    values = sample(400)
    interval = bootstrap_mean(values)
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    assert interval.estimate == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.004)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.004)
    assert (interval.level, interval.method) == (0.95, "percentile")


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5, 0.5]])
def test_values_without_spread(values: list[float]) -> None:
    interval = bootstrap_mean(values)
    assert (interval.estimate, interval.low, interval.high, interval.method) == (0.5, 0.5, 0.5, "percentile")
    assert permutation_test([0.0, 0.0]) == 1.0


def test_clusters_widen_the_interval_when_issues_are_alike() -> None:
    generator = np.random.default_rng(3)
    repositories = [f"r{i}" for i in range(12) for _ in range(10)]
    values = np.repeat(generator.normal(0, 0.3, 12), 10) + generator.normal(0, 0.05, 120)
    plain, clustered = bootstrap_mean(values), bootstrap_mean(values, clusters=repositories)
    assert clustered.method == "two-stage"
    assert clustered.estimate == plain.estimate
    assert clustered.high - clustered.low > 1.8 * (plain.high - plain.low)


def test_one_cluster_is_the_plain_bootstrap() -> None:
    values = sample()
    plain, clustered = bootstrap_mean(values), bootstrap_mean(values, clusters=["r"] * len(values))
    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high), abs=0.01)


def test_single_issues_as_clusters_are_the_plain_bootstrap() -> None:
    values = sample()
    names = [str(i) for i in range(len(values))]
    plain, clustered = bootstrap_mean(values), bootstrap_mean(values, clusters=names)
    assert (clustered.low, clustered.high) == pytest.approx((plain.low, plain.high), abs=0.01)


def test_unequal_clusters_by_enumeration() -> None:
    # One cluster of 1 issue (value 1) and one of 3 (value 0): the draws are both first (mean 1), both second (0), or
    # one of each (1/4), with probabilities 1/4, 1/4, 1/2.
    draws = clustered_weights(["a", "b", "b", "b"], 20_000, np.random.default_rng(0))
    means = np.concatenate([weights @ [1.0, 0, 0, 0] for weights in draws])
    values, counts = np.unique(means, return_counts=True)
    assert values.tolist() == [0.0, 0.25, 1.0]
    assert counts / 20_000 == pytest.approx([0.25, 0.5, 0.25], abs=0.015)


def test_exact_permutation_by_hand() -> None:
    # Four differences of +1: of 16 sign patterns only all-plus and all-minus are as extreme.
    assert permutation_test([1.0, 1.0, 1.0, 1.0]) == 2 / 16
    # Means of 1, 2, 4 with signs: |7| for two of eight.
    assert permutation_test([1.0, 2.0, 4.0]) == 2 / 8
    assert permutation_test([1.0, -1.0]) == 1.0
    # Two repositories of two issues flip together.
    assert permutation_test([1.0, 1.0, 1.0, 1.0], clusters=["a", "a", "b", "b"]) == 2 / 4


def test_random_permutation_has_a_floor() -> None:
    assert permutation_test(np.ones(50), resamples=999) == pytest.approx(1 / 1000)


def test_permutation_holds_its_level() -> None:
    generator = np.random.default_rng(4)
    rejected = sum(permutation_test(generator.normal(0, 1, 25), resamples=400, seed=i) <= 0.05 for i in range(300))
    assert rejected / 300 < 0.09


def test_bootstrap_covers() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for i in range(200):
        interval = bootstrap_mean(generator.binomial(1, 0.4, 60), resamples=500, seed=i)
        covered += interval.low <= 0.4 <= interval.high
    assert covered / 200 > 0.89


def test_compare() -> None:
    a = {"1": 1.0, "2": 0.5, "3": 0.5, "4": 1.0}
    b = {"4": 0.0, "3": 0.5, "2": 1.0, "1": 0.0}
    result = compare(a, b)
    assert (result.issues, result.better, result.equal, result.worse) == (4, 2, 1, 1)
    assert result.difference.estimate == pytest.approx(0.375)
    assert result == compare(dict(reversed(a.items())), b)
    mirrored = compare(b, a)
    assert mirrored.difference.estimate == pytest.approx(-0.375)
    assert mirrored.p_value == result.p_value
    grouped = compare(a, b, repositories={"1": "r", "2": "r", "3": "s", "4": "s"})
    assert grouped.difference.method == "two-stage"
    assert grouped.p_value == 2 / 4  # sums of 0.5 and 1.0: only +,+ and -,- are as extreme
    with pytest.raises(ValueError, match=r"not measured on the same issues: 1 .* 4"):
        compare(a, {key: b[key] for key in ("1", "2", "3")})
    with pytest.raises(ValueError, match="shape"):
        compare({}, {})


def test_holm_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert holm({}) == {}
    assert holm({"a": 0.7, "b": 0.6}) == {"a": 1.0, "b": 1.0}
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm({"a": 1.5})


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=8))
def test_holm_is_between_raw_and_bonferroni_and_keeps_the_order(p_values: dict[str, float]) -> None:
    adjusted = holm(p_values)
    assert list(adjusted) == list(p_values)
    for name, p in p_values.items():
        assert p <= adjusted[name] <= min(1.0, len(p_values) * p) + 1e-12
        assert all(adjusted[name] <= adjusted[other] for other in p_values if p < p_values[other])


def test_wilson_by_hand() -> None:
    interval = wilson(43, 100)
    assert (interval.low, interval.high) == pytest.approx((0.3373, 0.5278), abs=5e-4)
    assert wilson(0, 10).low == 0.0
    assert wilson(0, 10).high == pytest.approx(0.2775, abs=5e-4)
    assert wilson(10, 10).high == 1.0
    for successes, n in [(1, 0), (-1, 5), (6, 5)]:
        with pytest.raises(ValueError):
            wilson(successes, n)


def test_mean_over_seeds() -> None:
    assert mean_over_seeds([[1.0, 0.0, 0.5], [1.0, np.nan, 0.0]]).tolist() == [0.5, 0.5]
    for broken in ([[np.nan, np.nan]], [1.0, 2.0], [[], []]):
        with pytest.raises(ValueError, match="seed"):
            mean_over_seeds(broken)


@quick
@given(vectors, st.integers(0, 5))
def test_same_seed_same_result_within_the_range(values: list[float], seed: int) -> None:
    interval = bootstrap_mean(values, seed=seed, resamples=200)
    assert interval == bootstrap_mean(values, seed=seed, resamples=200)
    assert min(values) - 1e-12 <= interval.low <= interval.high <= max(values) + 1e-12
    repositories = ["ab"[i % 2] for i in range(len(values))]
    clustered = bootstrap_mean(values, seed=seed, resamples=200, clusters=repositories)
    assert min(values) - 1e-9 <= clustered.low <= clustered.high <= max(values) + 1e-9


@quick
@given(vectors)
def test_p_value_does_not_see_signs_of_all_or_scale(values: list[float]) -> None:
    p = permutation_test(values, resamples=256)
    assert 0.0 < p <= 1.0
    assert permutation_test([-value for value in values], resamples=256) == p


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"values": []}, "shape"),
        ({"values": [[1.0]]}, "shape"),
        ({"values": [1.0, np.nan]}, "finite"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bootstrap_mean(**arguments)  # type: ignore[arg-type]


def test_ten_thousand_resamples_of_five_hundred_issues_take_seconds() -> None:
    values = sample(500)
    repositories = [f"r{min(i // 40, 7)}" for i in range(500)]
    started = time.perf_counter()
    bootstrap_mean(values, clusters=repositories)
    bootstrap_mean(values)
    permutation_test(values)
    assert time.perf_counter() - started < 20
