"""From rewards to advantages: normalisation within a group, and the factors of each rollout. The trainer calls this."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from codegrep.metrics.scores import ROUNDING
from codegrep.rewards.calls import calls_per_turn, parallelism_share
from codegrep.rewards.outcome import Outcome

Scale = Literal["group", "batch", "none"]
Baseline = Literal["mean", "loo"]
STD_EPS = 1e-4  # as in TRL and ms-swift


def none(outcome: Outcome) -> float:  # noqa: ARG001 - called like every factor
    """Return 1 for every rollout: the plain GRPO advantage."""
    return 1.0


def efficiency(
    outcome: Outcome, *, target: float = 4.0, count_answer_turn: bool = False, count_repeated: bool = True
) -> float:
    """Return s = sqrt(min(c̄/target, 1)), in [0, 1] (CodeGrep, arXiv 2608.05886, eq 6 and 8).

    It multiplies advantages of both signs, after normalisation: a rollout with c̄ = 0 gives no policy gradient at all,
    and the advantages of a group no longer add up to 0. For c̄ and its two switches see `codegrep.rewards.calls`.
    """
    mean_calls = calls_per_turn(outcome, count_answer_turn=count_answer_turn, count_repeated=count_repeated)
    return parallelism_share(mean_calls, target)


def mean_calls(
    outcome: Outcome, *, most: float = 8.0, count_answer_turn: bool = False, count_repeated: bool = True
) -> float:
    """Return min(c̄/most, 1), in [0, 1] (Cognition, SWE-grep blog post of 16 Oct 2025).

    The post says that advantages are scaled by the average number of calls a turn and gives no formula. Reconstructed:
    linear, and over the largest number of calls of a turn, so that the learning rate keeps its meaning.
    """
    if most <= 0:
        raise ValueError(f"most must be positive, got {most}")
    calls = calls_per_turn(outcome, count_answer_turn=count_answer_turn, count_repeated=count_repeated)
    return min(calls / most, 1.0)


def normalise(
    rewards: NDArray[np.float64], groups: NDArray[np.intp], *, scale: Scale = "group", baseline: Baseline = "mean"
) -> NDArray[np.float64]:
    """Return the advantages (R - baseline) / (std + 1e-4) of groups of any size, std with n - 1.

    Args:
        rewards: (n,); NaN leaves a rollout out of mean and std and gives it advantage 0.
        groups: (n,) number of each rollout's group, from 0.
        scale: "group" (GRPO), "batch" (std over all scored rollouts), "none" (Dr. GRPO, arXiv 2503.20783).
        baseline: "mean" of the group (GRPO), or "loo", the mean of the others (RLOO): (R - mean)·n/(n-1).

    Returns:
        (n,) advantages, exactly 0 in a group without two different rewards.

    Raises:
        ValueError: the shapes differ.
    """
    if rewards.shape != groups.shape or rewards.ndim != 1:
        raise ValueError(f"rewards {rewards.shape} and groups {groups.shape} are not two lists of one length")
    scored = ~np.isnan(rewards)
    values, members = rewards[scored], groups[scored]
    total = int(groups.max()) + 1 if len(groups) else 0
    count = np.bincount(members, minlength=total).astype(np.float64)
    mean = np.bincount(members, values, minlength=total) / np.maximum(count, 1.0)
    centred = values - mean[members]
    others = np.maximum(count - 1.0, 1.0)
    if scale == "group":
        std = np.sqrt(np.bincount(members, centred**2, minlength=total) / others)
        shaped = centred / (std + STD_EPS)[members]
    elif scale == "batch":
        shaped = centred / ((values.std(ddof=1) if len(values) > 1 else 0.0) + STD_EPS)
    else:
        shaped = centred
    if baseline == "loo":
        shaped = shaped * (count / others)[members]
    # Equal rewards must give 0 and not a rounding error of the mean that is then divided by STD_EPS.
    advantages = np.zeros_like(rewards, dtype=np.float64)
    advantages[scored] = np.where(has_spread(rewards, groups)[members], shaped, 0.0)
    return advantages


def has_spread(rewards: NDArray[np.float64], groups: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return for each group whether it holds two different rewards, rounding aside. Args: as in `normalise`."""
    scored = ~np.isnan(rewards)
    total = int(groups.max()) + 1 if len(groups) else 0
    low, high = np.full(total, np.inf), np.full(total, -np.inf)
    np.minimum.at(low, groups[scored], rewards[scored])
    np.maximum.at(high, groups[scored], rewards[scored])
    return np.asarray(high - low > ROUNDING, dtype=np.bool_)
