"""Stored rollouts under one design: rewards, parts, advantages, and how much of each rollout is in the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegrep.lab.designs import Design
from codegrep.lab.stored import Stored
from codegrep.rewards.governance import MaskDecision
from codegrep.rewards.signal import BatchAdvantages, RolloutScore, batch_advantages, score_rollout

Floats = NDArray[np.float64]
_NOT_SCORED = RolloutScore(MaskDecision("", "full_mask", (), "none"), None, 0.0)


@dataclass(frozen=True)
class Rescored:
    """Stored rollouts under one design.

    Attributes:
        design: which.
        batch: rewards, factors and advantages, each (n,).
        parts: part of the reward -> (n,); NaN where the design was not asked.
        kept: (n,) share of the sampled tokens that governance leaves in the loss.
        failed: rollouts on which the design raised; they are outside of their groups.
        first_failure: its message.
    """

    design: Design
    batch: BatchAdvantages
    parts: dict[str, Floats]
    kept: Floats
    failed: int
    first_failure: str


def rescore(stored: Stored, design: Design, advance: Callable[[int], object] = lambda rows: None) -> Rescored:
    """Score every rollout as the trainer would (without turn scores, which move mass inside a rollout only).

    N-grams that repeat are not looked for, since tokens are not read. A design that raises on a rollout loses that
    rollout, not the replay; so does an exit cause that this version does not know.
    """
    scores: list[RolloutScore] = []
    failed, first_failure = 0, ""
    for rollout_id, outcome, conduct in zip(stored.rollout_ids, stored.outcomes, stored.conducts, strict=True):
        try:
            scores.append(score_rollout(outcome, conduct, design.signal))
        except Exception as problem:  # whatever a user's function raises
            failed += 1
            first_failure = first_failure or f"{rollout_id}: {type(problem).__name__}: {problem}"
            scores.append(_NOT_SCORED)
        if len(scores) % 4096 == 0:
            advance(4096)
    advance(len(scores) % 4096)
    of_rollouts = [score.reward.parts if score.reward is not None else {} for score in scores]
    names = dict.fromkeys(name for one in of_rollouts for name in one)
    parts = {name: np.array([one.get(name, math.nan) for one in of_rollouts]) for name in names}
    kept = np.array([_kept(s.decision, tokens) for s, tokens in zip(scores, stored.turn_tokens, strict=True)])
    return Rescored(design, batch_advantages(scores, stored.groups, design.signal), parts, kept, failed, first_failure)


def _kept(decision: MaskDecision, tokens: tuple[int, ...]) -> float:
    if decision.handling == "normal":
        return 1.0
    kept = sum(count for count, keep in zip(tokens, decision.kept_turns, strict=False) if keep)
    return kept / sum(tokens) if kept else 0.0
