"""Kappa and corrected rates against hand-worked and published values."""

from __future__ import annotations

import math

import pytest

from codegrep.labels.agreement import agreement, rogan_gladen


def answers(both: int, first: int, second: int, neither: int) -> tuple[list[bool], list[bool]]:
    a = [True] * (both + first) + [False] * (second + neither)
    b = [True] * both + [False] * first + [True] * second + [False] * neither
    return a, b


def test_kappa_of_a_published_audit() -> None:
    # 400 verdicts, 24 false positives, 16 false negatives, precision .880, recall .917: agreement 0.90, kappa 0.80.
    found = agreement(*answers(176, 24, 16, 184))
    assert found.observed.estimate == 0.9
    # Chance: 200/400 * 192/400 + 200/400 * 208/400 = 0.5; (0.9 - 0.5) / 0.5.
    assert found.kappa.estimate == pytest.approx(0.8)
    assert 0.73 < found.kappa.low < 0.78 and 0.82 < found.kappa.high < 0.87


def test_kappa_without_variety() -> None:
    assert math.isnan(agreement([True] * 5, [True] * 5).kappa.estimate)
    assert agreement([True] * 10, [True] * 8 + [False] * 2).kappa.estimate == 0.0
    with pytest.raises(ValueError):
        agreement([True], [])


def test_rogan_gladen_of_a_published_audit() -> None:
    # Sensitivity 176/192, specificity 184/208, 0.480 observed: (0.480 + 0.885 - 1) / (0.917 + 0.885 - 1) = 0.455.
    judge, reference = answers(176, 24, 16, 184)
    found = rogan_gladen(0.480, judge, reference)
    assert found.sensitivity.estimate == pytest.approx(0.917, abs=5e-4)
    assert found.specificity.estimate == pytest.approx(0.885, abs=5e-4)
    assert found.true == pytest.approx(0.455, abs=1e-3)


def test_a_judge_no_better_than_chance_says_nothing() -> None:
    assert math.isnan(rogan_gladen(0.5, *answers(1, 1, 1, 1)).true)
    with pytest.raises(ValueError):
        rogan_gladen(0.5, [True, False], [True, True])
