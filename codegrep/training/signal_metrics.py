"""What governance, judge, turn scores and factors did to a batch, as sums that add up over workers."""

from __future__ import annotations

from collections.abc import Sequence

from codegrep.judges.answer_judging import JudgedBatch
from codegrep.metrics.scores import ROUNDING
from codegrep.rewards.governance import CAUSES
from codegrep.training.score_batch import ScoredRollout
from codegrep.training.step_metrics import Sums, Tally


def signal_sums(batch: Sequence[ScoredRollout], advantages: Sequence[float], floor: float) -> Sums:
    """Return sums over one worker's rollouts of a step, those that it trains on.

    Args:
        batch: whole groups.
        advantages: of each rollout, after the factor and before turn weights.
        floor: of the turn weights.
    """
    tally = Tally()
    for cause in CAUSES:
        tally.total(f"masked/{cause}", 0.0)
    tally.total("masked/dead_group", 0.0)
    tally.total("turn_scores/invalid", 0.0)
    for scored, advantage in zip(batch, advantages, strict=True):
        _add_mask(tally, scored)
        if scored.score.reward is not None and not scored.rollout.lost:
            tally.mean("advantage/factor", scored.score.factor)
        _add_advantage(tally, scored, advantage, floor)
    return tally.sums()


def judge_sums(judged: JudgedBatch) -> Sums:
    """Return sums of what judging one worker's rollouts of a step took and gave."""
    tally = Tally()
    tally.total("judge/rollouts", len(judged.asked))
    tally.total("judge/requests", judged.requests)
    tally.total("judge/tokens", judged.tokens)
    tally.total("judge/failed", len(judged.failed))
    for judgement in judged.asked:
        tally.mean("judge/failed_share", float(judgement.agrees is None))
        tally.mean("judge/cache_hits", float(judgement.cached))
        if judgement.agrees is not None:
            tally.mean("judge/consistent", float(judgement.agrees))
    return tally.sums()


def _add_mask(tally: Tally, scored: ScoredRollout) -> None:
    sampled = scored.rollout.generated_tokens
    if scored.score.decision.handling != "normal":
        tally.total(f"masked/{scored.score.decision.cause}", 1.0)
    elif sampled and not any(scored.mask):
        tally.total("masked/dead_group", 1.0)
    if sampled:
        tally.mean("masked/tokens", sampled - sum(scored.mask), sampled)


def _add_advantage(tally: Tally, scored: ScoredRollout, advantage: float, floor: float) -> None:
    tokens = scored.tokens()
    weights = scored.turn_weights(advantage, floor)
    if scored.score.reward is not None:
        tally.mean("advantage/mean_abs", abs(advantage))
        tally.mean("advantage/positive_rate", float(advantage > ROUNDING))
    mass = abs(advantage) * sum(n * w for n, w in zip(tokens, weights, strict=True))
    tally.mean("advantage/mass", mass, scored.rollout.generated_tokens)
    if scored.turn_status == "off":
        return
    tally.mean("turn_scores/weighted", float(scored.turn_status == "weighted"))
    tally.total("turn_scores/invalid", float(scored.turn_status == "invalid"))
    if scored.turn_scores is not None:
        tally.mean("turn_scores/weight_max", max((w for w, n in zip(weights, tokens, strict=True) if n), default=1.0))
        for score, count in zip(scored.turn_scores, tokens, strict=True):
            if score is not None:
                tally.mean("turn_scores/score", count * score, count)
