"""From scores of turns to weights of their tokens, without changing how much loss a rollout carries.

arXiv 2605.07276: with n_i tokens in turn i, score s_i and s̄ = Σ n_i s_i / Σ n_i,

    A >= 0:  a_i = s_i / s̄
    A <  0:  a_i = c · max(2 - s_i / s̄, floor),  c such that Σ n_i a_i = Σ n_i

A good turn of a good rollout is pushed up more than a poor one; a poor turn of a bad rollout is pushed down more than a
good one. Scores never enter the reward or its normalisation.

Reconstructed, since the paper does not say: a rollout whose scores are all 0 keeps weight 1 everywhere; so does a turn
without a score (it is outside both sums) and a rollout without valid scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from codegrep.rewards.turn_credit import RolloutFacts, TurnScorer, TurnScores

FLOOR = 0.1  # the paper's

# Whether a rollout's turns are weighted, or why they are not.
TurnScoreStatus = Literal["weighted", "off", "ineligible", "invalid"]


@dataclass(frozen=True)
class TurnScoring:
    """How turns are scored in training.

    Attributes:
        scorer: None scores nothing: every token weighs the same.
        only_answered: rollouts without an answer keep equal weights. The paper scores only rollouts that compiled; a
            readable answer stands in for that here (reconstructed).
        floor: see `weigh_turns`.
        concurrency: rollouts scored at once, in threads.
    """

    scorer: TurnScorer | None = None
    only_answered: bool = True
    floor: float = FLOOR
    concurrency: int = 1

    def scores(self, trajectory: RolloutFacts) -> tuple[TurnScores | None, TurnScoreStatus]:
        """Return the scores of a rollout's turns, or None and why there are none.

        A scorer that gives no list, one of another length, or a score outside [0, 1] makes the rollout "invalid", as a
        judge's unreadable answer does. What a scorer raises is passed on: it is a mistake in the code.
        """
        if self.scorer is None:
            return None, "off"
        if self.only_answered and not trajectory.answered:
            return None, "ineligible"
        scores = self.scorer(trajectory)
        if scores is None or len(scores) != len(trajectory.turns) or not all(map(_is_score, scores)):
            return None, "invalid"
        return scores, "weighted"


def weigh_turns(scores: TurnScores, tokens: Sequence[int], advantage: float, *, floor: float = FLOOR) -> list[float]:
    """Return the weight a_i of every turn; Σ n_i a_i = Σ n_i over the scored turns, and over all.

    Args:
        scores: (n,) in [0, 1]; None for a turn that is not judged.
        tokens: (n,) tokens of each turn that are in the loss; a turn without any has weight 1.
        advantage: of the rollout; only its sign counts, and 0 counts as positive.
        floor: smallest weight before rescaling of a negative rollout's turns, > 0.

    Returns:
        (n,) weights >= 0. At A >= 0 a turn's weight is at most Σ n / n_i.
    """
    scored = {index: score for index, score in enumerate(scores) if score is not None and tokens[index]}
    mass = sum(tokens[index] for index in scored)
    weighted = sum(tokens[index] * score for index, score in scored.items())
    weights = [1.0] * len(tokens)
    if not weighted:  # nothing is scored, or everything with 0
        return weights
    relative = {index: score * mass / weighted for index, score in scored.items()}
    if advantage < 0:
        raw = {index: max(2.0 - value, floor) for index, value in relative.items()}
        rescale = mass / sum(tokens[index] * value for index, value in raw.items())
        relative = {index: rescale * value for index, value in raw.items()}
    for index, value in relative.items():
        weights[index] = value
    return weights


def _is_score(value: float | None) -> bool:
    return value is None or (math.isfinite(value) and 0.0 <= value <= 1.0)
