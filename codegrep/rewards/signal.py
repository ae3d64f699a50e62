"""The scoring path: from outcomes to rewards to advantages. Training, replay and the gaming suite call these functions.

A signal scores each rollout by itself (`score_rollout`), then compares it with its group (`batch_advantages`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from codegrep.rewards.advantage import Baseline, Scale, has_spread, none, normalise
from codegrep.rewards.governance import Conduct, MaskDecision, Rules, govern
from codegrep.rewards.outcome import AdvantageFactor, Outcome, RewardDesign, RewardParts

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TrainingSignal:
    """What turns outcomes into advantages.

    Attributes:
        reward: the design, of conf/reward.
        factor, baseline, scale: of conf/advantage; see `codegrep.rewards.advantage`.
        rules: of conf/governance.
    """

    reward: RewardDesign
    factor: AdvantageFactor = none
    baseline: Baseline = "mean"
    scale: Scale = "group"
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True)
class RolloutScore:
    """What a signal gives one rollout by itself.

    Attributes:
        decision: of governance.
        reward: what the group compares; None leaves the rollout out of its group.
        factor: what its advantage is multiplied by; 0 without a reward.
    """

    decision: MaskDecision
    reward: RewardParts | None
    factor: float


@dataclass(frozen=True)
class BatchAdvantages:
    """Arrays of (n,), one entry a rollout.

    Attributes:
        rewards: totals; NaN outside the group.
        factors: 0 outside the group.
        normalised: advantages before the factor.
        alive: its group holds two different rewards.
    """

    rewards: Floats
    factors: Floats
    normalised: Floats
    alive: NDArray[np.bool_]

    @property
    def advantages(self) -> Floats:
        """After the factor (CodeGrep, arXiv 2608.05886, eq 6 and 8)."""
        return self.normalised * self.factors


def score_rollout(outcome: Outcome, conduct: Conduct, signal: TrainingSignal) -> RolloutScore:
    """Score one rollout: governance says whether the design is asked, and the design gives the reward.

    Raises:
        ValueError: the design gave a reward that is not a finite number. Passed on, it would look like a rollout that
            could not be scored, and be left out silently.
    """
    decision = govern(conduct, signal.rules)
    if decision.scored_as == "none":
        return RolloutScore(decision, None, 0.0)
    reward = signal.reward(outcome) if decision.scored_as == "own" else RewardParts(0.0)
    if not math.isfinite(reward.total):
        raise ValueError(f"the reward design gave {reward.total} for {outcome}")
    return RolloutScore(decision, reward, float(signal.factor(outcome)))


def batch_advantages(
    scores: Sequence[RolloutScore], groups: NDArray[np.intp], signal: TrainingSignal
) -> BatchAdvantages:
    """Compare the rollouts of each group, then multiply by their factors.

    Args:
        scores: of the whole batch: with scale "batch" the deviation is over all of it.
        groups: (n,) number of each rollout's group, from 0.
    """
    rewards = np.array([math.nan if one.reward is None else one.reward.total for one in scores], dtype=np.float64)
    factors = np.array([one.factor for one in scores], dtype=np.float64)
    normalised = normalise(rewards, groups, scale=signal.scale, baseline=signal.baseline)
    return BatchAdvantages(rewards, factors, normalised, has_spread(rewards, groups)[groups])
