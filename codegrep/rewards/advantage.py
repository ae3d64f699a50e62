"""From rewards to advantages: normalisation within a group, then a factor for each rollout (SPEC 1.5, 7).

The NumPy code here is the reference that the trainer is tested against, and what stored rollouts are judged again with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from codegrep.metrics.scores import ROUNDING
from codegrep.rewards.calls import calls_per_turn, parallelism_share
from codegrep.rewards.outcome import AdvantageFactor, Outcome, RewardDesign, RewardParts, score

Scale = Literal["group", "batch", "none"]
Baseline = Literal["mean", "loo"]


def none(outcome: Outcome) -> float:
    """Factor 1 for every rollout: the plain GRPO advantage."""
    return 1.0


def efficiency(
    outcome: Outcome, *, target: float = 4.0, count_answer_turn: bool = False, count_repeated: bool = True
) -> float:
    """Factor s = sqrt(min(c̄/target, 1)) in [0, 1] (CodeGrep, arXiv 2608.05886, eq 6 and 8).

    It multiplies advantages of both signs, after normalisation: a rollout with c̄ = 0 gives no policy gradient at all,
    and the advantages of a group no longer add up to 0. For c̄ and its two switches see `codegrep.rewards.calls`.
    """
    mean_calls = calls_per_turn(outcome, count_answer_turn=count_answer_turn, count_repeated=count_repeated)
    return parallelism_share(mean_calls, target)


def mean_calls(
    outcome: Outcome, *, most: float = 8.0, count_answer_turn: bool = False, count_repeated: bool = True
) -> float:
    """Factor min(c̄/most, 1) in [0, 1] (Cognition, SWE-grep blog post of 16 Oct 2025; SPEC 5).

    The post says that advantages are scaled by the average number of calls a turn and gives no formula. Reconstructed:
    linear, and over the largest number of calls of a turn, so that the learning rate keeps its meaning.
    """
    if most <= 0:
        raise ValueError(f"most must be positive, got {most}")
    calls = calls_per_turn(outcome, count_answer_turn=count_answer_turn, count_repeated=count_repeated)
    return min(calls / most, 1.0)


def normalise(
    rewards: NDArray[np.float64],
    groups: NDArray[np.intp],
    *,
    std_eps: float = 1e-4,
    unbiased: bool = True,
    scale: Scale = "group",
    baseline: Baseline = "mean",
) -> NDArray[np.float64]:
    """Advantages A = (R - baseline) / (std + std_eps) of groups of any size.

    Args:
        rewards: (n,); NaN is a rollout that is left out of mean and std and gets advantage 0 (the machine failed). A
            group with one such reward, or none, has advantages 0.
        groups: (n,) number of each rollout's group, from 0.
        std_eps: added to the standard deviation; 1e-4 in TRL and ms-swift.
        unbiased: divide by n-1, as torch.std does.
        scale: "group" (GRPO), "batch" (std over all scored rollouts), "none" (Dr. GRPO, arXiv 2503.20783).
        baseline: "mean" of the group (GRPO), or "loo", the mean of the others (RLOO): (R - mean)·n/(n-1).

    Returns:
        (n,) advantages. A group whose rewards are all equal, rounding aside, has exactly 0.

    Raises:
        ValueError: shapes differ, or an unknown scale or baseline.
    """
    if scale not in ("group", "batch", "none") or baseline not in ("mean", "loo"):
        raise ValueError(f"unknown scale {scale!r} or baseline {baseline!r}")
    if rewards.shape != groups.shape or rewards.ndim != 1:
        raise ValueError(f"rewards {rewards.shape} and groups {groups.shape} are not two lists of one length")
    scored = ~np.isnan(rewards)
    values, members = rewards[scored], groups[scored]
    total = int(groups.max()) + 1 if len(groups) else 0
    count = np.bincount(members, minlength=total).astype(np.float64)
    mean = np.bincount(members, values, minlength=total) / np.maximum(count, 1.0)
    centred = values - mean[members]
    if scale == "group":
        variance = np.bincount(members, centred**2, minlength=total) / np.maximum(count - int(unbiased), 1.0)
        shaped = centred / (np.sqrt(variance) + std_eps)[members]
    elif scale == "batch":
        shaped = centred / (_std(values, unbiased) + std_eps)
    else:
        shaped = centred
    shaped = shaped * baseline_factors(rewards, groups, baseline)[scored]
    # Equal rewards must give 0 and not a rounding error of the mean that is then divided by std_eps.
    advantages = np.zeros_like(rewards, dtype=np.float64)
    advantages[scored] = np.where(spread(rewards, groups)[members], shaped, 0.0)
    return advantages


def baseline_factors(rewards: NDArray[np.float64], groups: NDArray[np.intp], baseline: Baseline) -> NDArray[np.float64]:
    """(n,) what R - mean is multiplied with: 1, or n/(n-1) for "loo" with n scored rollouts in the group.

    Args as in `normalise`.
    """
    if baseline == "mean":
        return np.ones(len(rewards))
    count = np.bincount(groups[~np.isnan(rewards)], minlength=int(groups.max()) + 1 if len(groups) else 0)
    return np.asarray((count / np.maximum(count - 1, 1))[groups], dtype=np.float64)


def spread(rewards: NDArray[np.float64], groups: NDArray[np.intp]) -> NDArray[np.bool_]:
    """(groups,) whether a group holds two different rewards, rounding aside; NaN is left out. Args: see `normalise`."""
    scored = ~np.isnan(rewards)
    total = int(groups.max()) + 1 if len(groups) else 0
    low, high = np.full(total, np.inf), np.full(total, -np.inf)
    np.minimum.at(low, groups[scored], rewards[scored])
    np.maximum.at(high, groups[scored], rewards[scored])
    return np.asarray(high - low > ROUNDING, dtype=np.bool_)


def group_normalise(
    rewards: Sequence[float | None],
    group_size: int,
    *,
    std_eps: float = 1e-4,
    unbiased: bool = True,
    scale: Scale = "group",
    baseline: Baseline = "mean",
) -> NDArray[np.float64]:
    """`normalise` for whole groups of one size, one after another.

    Args:
        rewards: (groups * group_size,); None or NaN is a rollout that cannot be scored.
        group_size: rollouts of one issue.

    Raises:
        ValueError: rewards are not whole groups, or as `normalise`.
    """
    if group_size < 1 or len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards are not whole groups of {group_size}")
    values = np.array([math.nan if reward is None else reward for reward in rewards], dtype=np.float64)
    groups = np.arange(len(values), dtype=np.intp) // group_size
    return normalise(values, groups, std_eps=std_eps, unbiased=unbiased, scale=scale, baseline=baseline)


@dataclass(frozen=True)
class Settlement:
    """Rewards and advantages of a batch; every field has one entry a rollout.

    Attributes:
        rewards: None where the rollout could not be scored.
        normalised: advantages before the factors.
        factors: factor of each rollout, 0 where it could not be scored.
        advantages: normalised * factors.
    """

    rewards: tuple[RewardParts | None, ...]
    normalised: NDArray[np.float64]
    factors: NDArray[np.float64]
    advantages: NDArray[np.float64]


def settle(
    outcomes: Sequence[Outcome],
    group_size: int,
    design: RewardDesign,
    factor: AdvantageFactor = none,
    *,
    std_eps: float = 1e-4,
    unbiased: bool = True,
    scale: Scale = "group",
    baseline: Baseline = "mean",
) -> Settlement:
    """The whole way from outcomes to advantages: score, normalise in the group, then multiply by the factor.

    Args as in `group_normalise`; outcomes of one issue stand together.
    """
    rewards = tuple(score(outcome, design) for outcome in outcomes)
    totals = [None if reward is None else reward.total for reward in rewards]
    normalised = group_normalise(totals, group_size, std_eps=std_eps, unbiased=unbiased, scale=scale, baseline=baseline)
    factors = np.array(
        [0.0 if reward is None else factor(outcome) for outcome, reward in zip(outcomes, rewards, strict=True)],
        dtype=np.float64,
    )
    return Settlement(rewards, normalised, factors, normalised * factors)


def _std(values: NDArray[np.float64], unbiased: bool) -> float:
    return float(values.std(ddof=int(unbiased))) if len(values) > 1 else 0.0
