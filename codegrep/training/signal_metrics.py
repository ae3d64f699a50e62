"""What governance, turn scores and factors did to a batch, as sums that add up over workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from codegrep.judges.verdicts import Judged
from codegrep.metrics.scores import ROUNDING
from codegrep.rewards.governance import CAUSES
from codegrep.training.score_batch import ScoredRollout
from codegrep.training.step_metrics import Sums, Tally


def settlement_sums(
    settled: Sequence[ScoredRollout], factors: Sequence[float], advantages: Sequence[float], floor: float
) -> Sums:
    """Sums over one worker's rollouts of a step, those that it trains on.

    Args:
        settled: groups stand together.
        factors: of the advantage of each rollout.
        advantages: of each rollout, after the factor and before turn weights.
        floor: of the turn weights.
    """
    tally = Tally()
    for cause in CAUSES:
        tally.total(f"masked/{cause}", 0.0)
    tally.total("masked/dead_group", 0.0)
    tally.total("process/invalid", 0.0)
    for one, factor, advantage in zip(settled, factors, advantages, strict=True):
        _add_mask(tally, one)
        if one.reward is not None and not one.rollout.lost:
            tally.mean("advantage/factor", factor)
        _add_advantage(tally, one, advantage, floor)
    return tally.sums()


def judge_sums(judged: Judged) -> Sums:
    """What asking about one worker's rollouts of a step took and gave."""
    tally = Tally()
    asked, failed = judged.asked, judged.failed
    tally.total("judge/rollouts", len(asked))
    tally.total("judge/requests", judged.requests)
    tally.total("judge/tokens", judged.tokens)
    tally.total("judge/failed", len(failed))
    for opinion in asked:
        tally.mean("judge/failed_share", float(opinion.agrees is None))
        tally.mean("judge/cache_hits", float(opinion.cached))
        if opinion.agrees is not None:
            tally.mean("judge/consistent", float(opinion.agrees))
    return tally.sums()


def _add_mask(tally: Tally, one: ScoredRollout) -> None:
    if one.verdict.handling != "normal":
        tally.total(f"masked/{one.verdict.cause}", 1.0)
    elif one.rollout.generated_tokens and not any(one.mask):
        tally.total("masked/dead_group", 1.0)
    sampled = one.rollout.generated_tokens
    if sampled:
        tally.mean("masked/tokens", sampled - sum(one.mask), sampled)


def _add_advantage(tally: Tally, one: ScoredRollout, advantage: float, floor: float) -> None:
    tokens = one.tokens()
    weights = one.turn_weights(advantage, floor)
    if one.reward is not None:
        tally.mean("advantage/mean_abs", abs(advantage))
        tally.mean("advantage/positive_rate", float(advantage > ROUNDING))
    mass = abs(advantage) * sum(n * w for n, w in zip(tokens, weights, strict=True))
    tally.mean("advantage/mass", mass, one.rollout.generated_tokens)
    if one.standing == "off":
        return
    tally.mean("process/weighted", float(one.standing == "weighted"))
    tally.total("process/invalid", float(one.standing == "invalid"))
    if one.scores is not None:
        tally.mean("process/weight_max", max((w for w, n in zip(weights, tokens, strict=True) if n), default=1.0))
        for score, count in zip(one.scores, tokens, strict=True):
            if score is not None:
                tally.mean("process/score", count * score, count)
