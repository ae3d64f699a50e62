"""Group normalisation against values worked by hand and torch's formula, and the way from outcomes to advantages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from codegrep.rewards.advantage import Baseline, Scale, efficiency, has_spread, normalise
from codegrep.rewards.designs import v3
from codegrep.rewards.governance import Conduct
from codegrep.rewards.outcome import Outcome
from codegrep.rewards.signal import BatchAdvantages, TrainingSignal, batch_advantages, score_rollout

unit = st.floats(0, 1, allow_subnormal=False)


def group_normalise(
    rewards: Sequence[float | None], size: int, scale: Scale = "group", baseline: Baseline = "mean"
) -> NDArray[np.float64]:
    """Groups of one size, one after another."""
    values = np.array([math.nan if reward is None else reward for reward in rewards])
    return normalise(values, np.arange(len(values)) // size, scale=scale, baseline=baseline)


def test_two_rewards_by_hand() -> None:
    # mean .5, unbiased std sqrt(.5) = .70711
    assert group_normalise([0.0, 1.0], 2) == pytest.approx([-0.5 / 0.70720678, 0.5 / 0.70720678])
    assert group_normalise([0.0, 1.0], 2, scale="none") == pytest.approx([-0.5, 0.5])
    assert group_normalise([0.0, 1.0], 2, scale="none", baseline="loo") == pytest.approx([-1.0, 1.0])


def test_leave_one_out_is_the_mean_of_the_others() -> None:
    rewards = [0.1, 0.4, 0.7, 0.2]
    expected = [reward - (sum(rewards) - reward) / 3 for reward in rewards]
    assert group_normalise(rewards, 4, scale="none", baseline="loo") == pytest.approx(expected)


def test_batch_scale_uses_every_scored_reward() -> None:
    rewards = [0.0, 1.0, 0.5, None]
    std = float(np.std([0.0, 1.0, 0.5], ddof=1))
    assert group_normalise(rewards, 2, scale="batch") == pytest.approx([-0.5 / (std + 1e-4), 0.5 / (std + 1e-4), 0, 0])


def test_spread_is_over_the_whole_group_and_no_rounding() -> None:
    def spread(*rewards: float, size: int) -> list[bool]:
        return has_spread(np.array(rewards), np.arange(len(rewards)) // size).tolist()

    assert spread(0.1, 0.1, 0.1, 0.1, size=4) == [False]
    assert spread(0.1, 0.1 + 1e-6, 0.1, 0.1, size=4) == [True]
    # 5/11 by two ways of adding up.
    assert spread(0.45454545454545453, 0.4545454545454545, size=2) == [False]
    assert spread(math.nan, 0.1, math.nan, 0.1, size=4) == [False]
    assert spread(math.nan, math.nan, size=2) == [False]
    assert spread(0, 1, 0.5, 0.5, size=2) == [True, False]


def test_groups_do_not_see_each_other() -> None:
    together = group_normalise([0.0, 1.0, 0.3, 0.9], 2)
    assert together[:2] == pytest.approx(group_normalise([0.0, 1.0], 2))
    assert together[2:] == pytest.approx(group_normalise([0.3, 0.9], 2))


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_failed_machine_changes_nothing_for_the_others(missing: float | None) -> None:
    advantages = group_normalise([0.2, missing, 0.8, 0.5], 4)
    assert advantages[1] == 0.0
    assert np.delete(advantages, 1) == pytest.approx(group_normalise([0.2, 0.8, 0.5], 3))


@pytest.mark.parametrize(
    "rewards",
    [[None, 0.7, None], [None, None, None], [0.3, 0.3, 0.3], [0.1 + 0.2, 0.3, None], [5 / 11, 1 - 6 / 11, 5 / 11]],
)
def test_one_survivor_none_or_no_spread_gives_exactly_zero(rewards: list[float | None]) -> None:
    for scale in ("group", "batch", "none"):
        assert group_normalise(rewards, 3, scale=scale).tolist() == [0.0, 0.0, 0.0]  # type: ignore[arg-type]


@given(st.lists(unit, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_sum_is_zero_and_order_does_not_matter(rewards: list[float], order: object) -> None:
    size = len(rewards)
    advantages = group_normalise(rewards, size)
    assert math.isclose(float(advantages.sum()), 0.0, abs_tol=1e-8)
    places = list(range(size))
    order.shuffle(places)  # type: ignore[attr-defined]
    assert group_normalise([rewards[i] for i in places], size) == pytest.approx(advantages[places], abs=1e-9)


@settings(deadline=None)  # the first call imports torch
@given(st.lists(unit.map(lambda value: round(value, 6)), min_size=4, max_size=4))  # closer rewards count as equal
def test_same_as_torch(rewards: list[float]) -> None:
    torch = pytest.importorskip("torch")
    values = torch.tensor(rewards, dtype=torch.float64)
    expected = (values - values.mean()) / (values.std() + 1e-4)
    assert group_normalise(rewards, 4) == pytest.approx(expected.numpy(), abs=1e-9)


def _outcome(found: bool, calls: int, exit_cause: str = "answer") -> Outcome:
    return Outcome(("a",) if found else ("x",), frozenset("a"), calls_per_turn=(calls, 0), exit_cause=exit_cause)


def _score(group: Sequence[Outcome], signal: TrainingSignal) -> BatchAdvantages:
    scores = [score_rollout(o, Conduct(o.exit_cause, o.calls_per_turn), signal) for o in group]
    return batch_advantages(scores, np.zeros(len(group), dtype=np.intp), signal)


def test_the_factor_comes_after_normalisation() -> None:
    group = [_outcome(True, 4), _outcome(False, 1), _outcome(True, 0), _outcome(True, 1, "infrastructure")]
    batch = _score(group, TrainingSignal(v3, efficiency))
    assert batch.rewards.tolist()[:3] == [1, 0, 0] and math.isnan(batch.rewards[3])
    # Mean 1/3, deviation sqrt(1/3) = .57735: 0.66667 / .57745 = 1.15450, and half of that below.
    assert batch.normalised == pytest.approx([1.15450, -0.57725, -0.57725, 0], abs=1e-5)
    assert batch.factors.tolist() == [1.0, 0.5, 0.0, 0.0]
    assert batch.advantages == pytest.approx([1.15450, -0.28863, 0, 0], abs=1e-5)  # no longer add up to 0
    assert batch.alive.tolist() == [True] * 4


def test_without_a_factor_the_advantage_is_plain() -> None:
    batch = _score([_outcome(True, 1), _outcome(False, 1)], TrainingSignal(v3, scale="none"))
    assert batch.advantages.tolist() == [0.5, -0.5]


def test_groups_of_any_size_and_in_any_order() -> None:
    # Groups 0 (0, 1), 1 (alone), 2 (0.3 twice, once with a rounding error, lost), interleaved.
    rewards = np.array([0.0, 0.7, 0.1 + 0.2, 1.0, 0.3, math.nan])
    groups = np.array([0, 1, 2, 0, 2, 2])
    assert has_spread(rewards, groups).tolist() == [True, False, False]
    advantages = normalise(rewards, groups, scale="none")
    assert advantages.tolist() == [-0.5, 0.0, 0.0, 0.5, 0.0, 0.0]
    assert normalise(rewards, groups, scale="none", baseline="loo").tolist() == [-1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert normalise(np.array([]), np.array([], dtype=int)).shape == (0,)
    with pytest.raises(ValueError, match="one length"):
        normalise(rewards, groups[:3])


def test_leave_one_out_counts_the_scored_ones() -> None:
    # Mean 0.5 of three; times 3/2.
    assert group_normalise([0.0, 1.0, 0.5, None], 4, "none", "loo").tolist() == [-0.75, 0.75, 0.0, 0.0]


@given(st.lists(st.tuples(unit, st.integers(0, 3)), min_size=1, max_size=20), st.sampled_from(["mean", "loo"]))
def test_each_group_is_normalised_as_if_alone(pairs: list[tuple[float, int]], baseline: str) -> None:
    rewards, groups = np.array([r for r, _ in pairs]), np.array([g for _, g in pairs])
    together = normalise(rewards, groups, baseline=baseline)  # type: ignore[arg-type]
    for group in set(groups.tolist()):
        members = groups == group
        alone = normalise(rewards[members], np.zeros(members.sum(), dtype=int), baseline=baseline)  # type: ignore[arg-type]
        assert together[members] == pytest.approx(alone, abs=1e-9)
