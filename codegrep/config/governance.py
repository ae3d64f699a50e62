"""conf/governance: what the end of a rollout does to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class GovernanceConfig:
    """conf/governance: what the cause of a rollout's end does to its reward and its mask (SPEC 4.4).

    Attributes:
        handling: cause -> normal, last_turn or full_mask; a cause that is not named is normal. Causes are the exit
            causes of a rollout, and excessive_calls, repetition and judge_failed (no verdict where the reward needs
            one; full_mask where it is not named, never a reward of 0; normal keeps what the reward is without it).
        masked_in_group: fully masked rollouts stay in mean and deviation of their group, with reward 0.
        infrastructure_in_group: so do those that the machine lost; False leaves them out.
        max_calls: more calls in one turn are excessive_calls (5); 0 never.
        repetition_tokens, repetition_times: an n-gram of so many tokens, found more than so many times in one turn, is
            a repetition (15, 30); 0 times: never.
    """

    name: str
    handling: dict[str, str]
    masked_in_group: bool
    infrastructure_in_group: bool
    max_calls: int
    repetition_tokens: int
    repetition_times: int
