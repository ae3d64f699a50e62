"""conf/advantage: from the rewards of a group to advantages."""

from __future__ import annotations

from typing import Literal

from codegrep.config.reward import FunctionConfig
from codegrep.config.setting import group, setting


@group
class AdvantageConfig(FunctionConfig):
    """conf/advantage: `function` is the factor that normalised advantages are multiplied with."""

    baseline: Literal["mean", "loo"] = setting(
        "what is subtracted: the group's mean (GRPO), or the mean of the others (RLOO)", default="mean"
    )
    scale: Literal["group", "batch", "none"] = setting(
        "what is divided by: standard deviation of the group (GRPO) or batch, or nothing (Dr. GRPO)", default="group"
    )
