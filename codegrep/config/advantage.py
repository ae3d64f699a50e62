"""conf/advantage: from the rewards of a group to advantages."""

from __future__ import annotations

from dataclasses import dataclass

from codegrep.config.reward import FunctionConfig


@dataclass
class AdvantageConfig(FunctionConfig):
    """conf/advantage: from the rewards of a group to advantages; `function` is the factor they are multiplied with.

    Attributes:
        baseline: "mean" of the group (GRPO), or "loo", the mean of the others (RLOO).
        scale: "group" divides by the group's standard deviation (GRPO), "batch" by the batch's, "none" by nothing
            (Dr. GRPO). train.grpo.scale_rewards follows it.
    """

    baseline: str = "mean"
    scale: str = "group"
