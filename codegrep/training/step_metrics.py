"""Metrics of a batch of rollouts, as sums that add up over workers; names as in tracking/names.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from codegrep.metrics.scores import differ, f_beta, precision, recall
from codegrep.protocol.calls import ToolStatus
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rewards.calls import calls_per_turn
from codegrep.rewards.outcome import Outcome
from codegrep.rollout.record import Rollout
from codegrep.tracking.names import reward_part
from codegrep.training.score_batch import ScoredRollout

# name -> (sum, count). The metric is sum / count, not logged at count 0; with count None it is the sum.
Sums = dict[str, tuple[float, float | None]]


class Tally:
    """Accumulates sums by name."""

    def __init__(self) -> None:
        self._means: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._totals: defaultdict[str, float] = defaultdict(float)

    def mean(self, name: str, value: float, count: float = 1.0) -> None:
        """Add to a metric that is a mean over `count`."""
        self._means[name][0] += value
        self._means[name][1] += count

    def total(self, name: str, value: float) -> None:
        """Add to a metric that is a plain sum."""
        self._totals[name] += value

    def sums(self) -> Sums:
        """Return the sums so far."""
        means: Sums = {name: (total, count) for name, (total, count) in self._means.items()}
        return {**means, **{name: (total, None) for name, total in self._totals.items()}}


def rollout_sums(batch: Sequence[ScoredRollout], group_size: int) -> Sums:
    """Return the sums over one worker's rollouts of a step; groups stand together.

    Lost rollouts (`Rollout.lost`) count only in their exit cause, errors/infrastructure, sampled tokens and reward.
    """
    tally = Tally()
    tally.total("errors/infrastructure", 0.0)
    tally.total("errors/refused_calls", 0.0)
    for one in batch:
        rollout = one.rollout
        for cause in ExitCause:
            tally.mean(f"rollout/exit_{cause.value}", float(rollout.exit_cause == cause))
        tally.total("completions/sampled", rollout.generated_tokens)
        reward = one.score.reward
        if reward is not None:
            tally.mean("reward/total", reward.total)
        tally.total("errors/infrastructure", float(rollout.exit_cause == ExitCause.INFRASTRUCTURE))
        if rollout.lost:
            continue
        for part, value in reward.parts.items() if reward is not None else ():
            tally.mean(reward_part(part), value)
        _add_rollout(tally, rollout, one.outcome)
    for start in range(0, len(batch), group_size):
        _add_group(tally, batch[start : start + group_size])
    return tally.sums()


def _add_rollout(tally: Tally, rollout: Rollout, outcome: Outcome) -> None:
    calls = [call for turn in rollout.turns for call in turn.calls]
    executed = sum(outcome.calls_per_turn)
    tally.mean("rollout/turns", len(rollout.turns))
    tally.mean("rollout/tool_turns", sum(1 for number in outcome.calls_per_turn if number))
    tally.mean("rollout/calls", executed)
    tally.mean("rollout/calls_per_turn", calls_per_turn(outcome))
    if outcome.unique_calls_per_turn is not None:
        tally.mean("rollout/duplicate_calls", executed - sum(outcome.unique_calls_per_turn), executed)
    tally.mean("errors/parse", outcome.malformed_calls, len(calls))
    tally.total("errors/refused_calls", sum(1 for call in calls if call.status == ToolStatus.REFUSED.value))
    tally.mean("rollout/f05", f_beta(outcome.predicted, outcome.gold))
    tally.mean("rollout/precision", precision(outcome.predicted, outcome.gold))
    tally.mean("rollout/recall", recall(outcome.predicted, outcome.gold))
    tally.mean("rollout/files", len(outcome.predicted))
    tally.mean("rollout/answered", float(outcome.answered))
    tally.mean("completions/generated", rollout.generated_tokens)
    tally.mean("completions/mean_length", len(rollout.completion_ids))
    tally.mean(
        "completions/clipped_ratio", float(rollout.exit_cause in (ExitCause.MAX_TOKENS, ExitCause.CONTEXT_LIMIT))
    )


def _add_group(tally: Tally, group: Sequence[ScoredRollout]) -> None:
    scored = [(one.score.reward.total, one.outcome) for one in group if one.score.reward is not None]
    rewards = [reward for reward, _ in scored]
    tally.mean("group/scored", len(rewards))
    tally.mean("group/dead_rate", float(not differ(rewards)))
    if rewards:
        tally.mean("group/reward_range", max(rewards) - min(rewards))
        tally.mean("group/best", max(f_beta(outcome.predicted, outcome.gold) for _, outcome in scored))
    if len(rewards) > 1:
        mean = sum(rewards) / len(rewards)
        tally.mean("group/reward_std", (sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)) ** 0.5)


def add_up(parts: Iterable[Mapping[str, tuple[float, float | None]]]) -> dict[str, float]:
    """Return the metrics of a step from the sums of all workers."""
    totals: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    plain: set[str] = set()
    for sums in parts:
        for name, (total, count) in sums.items():
            totals[name][0] += total
            totals[name][1] += count or 0.0
            if count is None:
                plain.add(name)
    return {
        name: total if name in plain else total / count
        for name, (total, count) in totals.items()
        if name in plain or count
    }


def kept(sums: Sums) -> Sums:
    """Return the sums under the names of groups that a step trains on, where others were sampled too."""
    return {f"kept/{name}": value for name, value in sums.items()}
