"""Weights against values worked out by hand, and the same over shards as over the whole."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.labels.weights import merged, weighting


def test_hand_worked_values() -> None:
    # Lengths 10, 20, 40: the median is 20; raw weights 1 - 2^(-l/20): 1 - 2^-0.5, 1/2, 3/4.
    found = weighting({10: 1, 20: 1, 40: 1})
    raw = [1 - 2**-0.5, 0.5, 0.75]
    assert found.beta == 20
    assert found.mean == pytest.approx(sum(raw) / 3)
    assert [found.weight(n) for n in (10, 20, 40)] == pytest.approx([r / (sum(raw) / 3) for r in raw])
    assert found.weight(20) == pytest.approx(0.5 / 0.5142977, abs=1e-6)  # (0.2928932 + 0.5 + 0.75) / 3


def test_an_even_number_takes_the_middle_of_two() -> None:
    assert weighting({10: 1, 31: 1}).beta == 20.5
    assert weighting({10: 2, 30: 1, 50: 1}).beta == 20


def test_missing_text_is_left_out_and_weighs_nothing() -> None:
    assert weighting({0: 100, 10: 1, 20: 1, 40: 1}) == weighting({10: 1, 20: 1, 40: 1})
    assert weighting({0: 5}).weight(0) == 0
    assert weighting({}).beta == 1.0  # LRAT's default


def test_over_all_candidates_missing_text_counts_as_no_token() -> None:
    # CodeGrep 3.4: β is the median over all candidates. Lengths 0, 0, 10, 20, 40: β = 10, not 20; raw weights
    # 0, 0, 1/2, 3/4, 15/16, mean 2.1875 / 5 = 0.4375.
    found = weighting({0: 2, 10: 1, 20: 1, 40: 1}, with_empty=True)
    assert (found.beta, found.mean, found.candidates) == (10, pytest.approx(0.4375), 5)
    assert found.weight(10) == pytest.approx(0.5 / 0.4375) and found.weight(0) == 0
    assert weighting({10: 1, 20: 1, 40: 1}, with_empty=True) == weighting({10: 1, 20: 1, 40: 1})


def test_most_texts_missing_leave_a_median_of_nothing() -> None:
    # β = 0: any text weighs fully before normalising, 1 / (1/4) after it.
    found = weighting({0: 3, 8: 1}, with_empty=True)
    assert (found.beta, found.mean) == (0, 0.25)
    assert found.weight(8) == 4 and found.weight(0) == 0 and found.shortest(0.15) == 0


def test_when_the_weight_filter_can_bite() -> None:
    # CodeGrep, arXiv 2608.05886, 3.4: with a mean of 0.5 the filter needs 0.1125 beta, so beta above 267 for 30 tokens.
    found = weighting({267: 1})
    assert found.mean == 0.5
    assert found.shortest(0.15) == pytest.approx(0.1125 * 267, rel=1e-3)
    assert found.weight(math.ceil(found.shortest(0.15))) >= 0.15 > found.weight(math.floor(found.shortest(0.15)))


def test_beta_and_mean_are_those_of_the_whole_set_with_skewed_shards() -> None:
    shards = [{5: 1000}, {500: 3}, {}, {50: 10, 60: 2}]
    whole = {5: 1000, 500: 3, 50: 10, 60: 2}
    assert weighting(merged(shards)) == weighting(whole)
    betas = [weighting(shard).beta for shard in shards if shard]
    assert weighting(whole).beta == 5 and sum(betas) / len(betas) != 5


@given(st.lists(st.dictionaries(st.integers(1, 400), st.integers(1, 50), max_size=8), min_size=1, max_size=6))
def test_the_order_of_shards_does_not_matter_and_the_mean_weight_is_one(shards: list[dict[int, int]]) -> None:
    found = weighting(merged(shards))
    assert found == weighting(merged(reversed(shards)))
    total = merged(shards)
    if total:
        mean = sum(found.weight(n) * count for n, count in total.items()) / sum(total.values())
        assert mean == pytest.approx(1.0)
