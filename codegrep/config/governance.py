"""conf/governance: what the end of a rollout does to it."""

from __future__ import annotations

from typing import Literal

from codegrep.config.setting import group, setting

Handling = Literal["normal", "last_turn", "full_mask"]


@group
class GovernanceConfig:
    """conf/governance: what a rollout's exit cause does to its reward and mask (arXiv 2605.07276)."""

    name: str = setting("label")
    handling: dict[str, Handling] = setting(
        "exit cause, excessive_calls, repetition or judge_failed -> handling; a cause that is not named is normal, "
        "judge_failed full_mask"
    )
    masked_in_group: bool = setting("fully masked rollouts stay in their group's mean and std, with reward 0")
    infrastructure_in_group: bool = setting("so do rollouts that the machine lost")
    max_calls: int = setting("more calls in one turn are excessive_calls; 0: never", ge=0, paper="2605.07276: 5")
    repetition_tokens: int = setting("length of an n-gram that counts as repeated", ge=1, paper="2605.07276: 15 to 50")
    repetition_times: int = setting("more occurrences in one turn are a repetition; 0: never", ge=0, paper="30")
