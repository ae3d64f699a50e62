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


def group_normalise(
    rewards: Sequence[float | None],
    group_size: int,
    *,
    std_eps: float = 1e-4,
    unbiased: bool = True,
    scale: Scale = "group",
    baseline: Baseline = "mean",
) -> NDArray[np.float64]:
    """Advantages A = (R - baseline) / (std + std_eps) of whole groups, one after another.

    Args:
        rewards: (groups * group_size,); None or NaN is a rollout that cannot be scored (the machine failed). It is left
            out of mean and std and gets advantage 0. A group with one scored rollout, or none, has advantages 0.
        group_size: rollouts of one issue.
        std_eps: added to the standard deviation; 1e-4 in TRL and ms-swift.
        unbiased: divide by n-1, as torch.std does.
        scale: "group" (GRPO), "batch" (std over all scored rollouts), "none" (Dr. GRPO, arXiv 2503.20783).
        baseline: "mean" of the group (GRPO), or "loo", the mean of the others (RLOO): (R - mean)·n/(n-1).

    Returns:
        (groups * group_size,) advantages. A group whose rewards are all equal has exactly 0.

    Raises:
        ValueError: rewards are not whole groups, or an unknown scale or baseline.
    """
    if scale not in ("group", "batch", "none") or baseline not in ("mean", "loo"):
        raise ValueError(f"unknown scale {scale!r} or baseline {baseline!r}")
    if group_size < 1 or len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards are not whole groups of {group_size}")
    values = np.array([math.nan if reward is None else reward for reward in rewards], dtype=np.float64)
    grouped = values.reshape(-1, group_size)
    batch_std = _std(values[~np.isnan(values)], unbiased)
    advantages = np.zeros_like(grouped)
    for row, group in enumerate(grouped):
        scored = ~np.isnan(group)
        rewarded = group[scored]
        # Equal rewards must give 0 and not a rounding error of the mean that is then divided by std_eps.
        if len(rewarded) < 2 or rewarded.min() == rewarded.max():
            continue
        centred = rewarded - rewarded.mean()
        if baseline == "loo":
            centred *= len(rewarded) / (len(rewarded) - 1)
        if scale == "group":
            centred /= _std(rewarded, unbiased) + std_eps
        elif scale == "batch":
            centred /= batch_std + std_eps
        advantages[row, scored] = centred
    return advantages.reshape(-1)


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
