"""Stored rollouts under one design: rewards, parts, advantages, and how much of each rollout is in the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegrep.lab.designs import Design
from codegrep.lab.stored import Stored
from codegrep.protocol.exit_cause import LOST
from codegrep.rewards.advantage import normalise, spread
from codegrep.rewards.governance import MaskDecision, govern
from codegrep.rewards.outcome import score

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rescored:
    """Arrays of (n,), one entry a rollout.

    Attributes:
        design: which.
        rewards: as they go into the group; NaN where the rollout is outside of it.
        parts: of the reward, by name; NaN where the design was not asked.
        normalised: advantages before the factor.
        factors: what they are multiplied with; 0 outside of the group.
        kept: share of the sampled tokens that governance leaves in the loss.
        alive: (groups,) whether a group has two different rewards.
        failed: rollouts on which the design raised; they are outside of their groups.
        first_failure: what it said.
    """

    design: Design
    rewards: Floats
    parts: dict[str, Floats]
    normalised: Floats
    factors: Floats
    kept: Floats
    alive: NDArray[np.bool_]
    failed: int
    first_failure: str

    @property
    def advantages(self) -> Floats:
        """After the factor."""
        return self.normalised * self.factors


def rescore(stored: Stored, design: Design, advance: Callable[[int], object] = lambda rows: None) -> Rescored:
    """Settle every rollout as the trainer would (process weights left out: they move mass inside a rollout only).

    Repetition of n-grams is not looked for, since tokens are not read. A design that raises on a rollout loses that
    rollout, not the replay; so does an exit cause that this version does not know.
    """
    size = len(stored)
    rewards, factors, kept = np.full(size, math.nan), np.zeros(size), np.zeros(size)
    parts: dict[str, Floats] = {}
    failed, first_failure = 0, ""
    for index, (outcome, conduct) in enumerate(zip(stored.outcomes, stored.conducts, strict=True)):
        try:
            verdict = govern(conduct, design.rules)
            reward = verdict.settled(score(outcome, design.reward) if verdict.scored_as == "own" else None)
            kept[index] = _kept(verdict, stored.turn_tokens[index])
            if reward is not None:
                factors[index] = design.factor(outcome)
                rewards[index] = reward.total
                for name, value in reward.parts.items():
                    if name not in parts:
                        parts[name] = np.full(size, math.nan)
                    parts[name][index] = value
        except Exception as problem:  # a user's function, or an exit cause, that nobody thought of
            failed += 1
            rewards[index], factors[index] = math.nan, 0.0
            first_failure = first_failure or f"{stored.rollout_ids[index]}: {type(problem).__name__}: {problem}"
        if index % 4096 == 4095:
            advance(4096)
    advance(size % 4096)
    normalised = normalise(rewards, stored.groups, baseline=design.baseline, scale=design.scale)
    alive = spread(rewards, stored.groups)
    return Rescored(design, rewards, parts, normalised, factors, kept, alive, failed, first_failure)


def _kept(verdict: MaskDecision, tokens: tuple[int, ...]) -> float:
    if verdict.handling == "normal":
        return float(verdict.cause not in LOST)
    total = sum(tokens)
    return sum(count for count, keep in zip(tokens, verdict.kept_turns, strict=True) if keep) / total if total else 0.0
