"""What one batch of rollouts looks like, as sums that add up over workers. Pure; names as in tracking/names.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from codegrep.protocol.calls import ToolStatus
from codegrep.rewards.calls import calls_per_turn
from codegrep.rewards.outcome import Outcome, RewardParts
from codegrep.rewards.scores import differ, f_beta, precision, recall
from codegrep.rollout.record import ExitCause, Rollout
from codegrep.tracking.names import reward_part

# name -> (sum, count). The metric is sum / count; with count 0 it is a plain total.
Sums = dict[str, tuple[float, float]]


class Tally:
    """Adds up sums by name."""

    def __init__(self) -> None:
        self._sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def mean(self, name: str, value: float, count: float = 1.0) -> None:
        """Add to a metric that is a mean over `count`."""
        self._sums[name][0] += value
        self._sums[name][1] += count

    def total(self, name: str, value: float) -> None:
        """Add to a metric that is a plain sum."""
        self._sums[name][0] += value

    def sums(self) -> Sums:
        """What was added so far."""
        return {name: (total, count) for name, (total, count) in self._sums.items()}


def rollout_sums(
    rollouts: Sequence[Rollout],
    outcomes: Sequence[Outcome],
    rewards: Sequence[RewardParts | None],
    factors: Sequence[float],
    group_size: int,
) -> Sums:
    """Sums over one worker's rollouts of a step; groups stand together.

    Rollouts that the machine lost count in errors/infrastructure and rollout/exit_infrastructure alone, whatever
    reward governance gave them. rewards: after governance; None is outside the group.
    """
    tally = Tally()
    tally.total("errors/infrastructure", 0.0)
    tally.total("errors/refused_calls", 0.0)
    for rollout, outcome, reward, factor in zip(rollouts, outcomes, rewards, factors, strict=True):
        for cause in ExitCause:
            tally.mean(f"rollout/exit_{cause.value}", float(rollout.exit_cause == cause))
        if rollout.exit_cause == ExitCause.INFRASTRUCTURE:
            tally.total("errors/infrastructure", 1.0)
            continue
        if reward is not None:
            tally.mean("advantage/factor", factor)
            for part, value in reward.parts.items():
                tally.mean(reward_part(part), value)
        _add_rollout(tally, rollout, outcome)
    for start in range(0, len(rollouts), group_size):
        _add_group(tally, outcomes[start : start + group_size], rewards[start : start + group_size])
    return tally.sums()


def _add_rollout(tally: Tally, rollout: Rollout, outcome: Outcome) -> None:
    calls = [call for turn in rollout.turns for call in turn.calls]
    executed = sum(outcome.calls_per_turn)
    malformed = sum(1 for call in calls if not call.name)
    tally.mean("rollout/turns", len(rollout.turns))
    tally.mean("rollout/tool_turns", sum(1 for number in outcome.calls_per_turn if number))
    tally.mean("rollout/calls", executed)
    tally.mean("rollout/calls_per_turn", calls_per_turn(outcome))
    if executed and outcome.unique_calls_per_turn is not None:
        tally.mean("rollout/duplicate_calls", executed - sum(outcome.unique_calls_per_turn), executed)
    if calls:
        tally.mean("errors/parse", malformed, len(calls))
    tally.total("errors/refused_calls", sum(1 for call in calls if call.status == ToolStatus.REFUSED.value))
    tally.mean("rollout/f05", f_beta(outcome.predicted, outcome.gold))
    tally.mean("rollout/precision", precision(outcome.predicted, outcome.gold))
    tally.mean("rollout/recall", recall(outcome.predicted, outcome.gold))
    tally.mean("rollout/files", len(outcome.predicted))
    tally.mean("rollout/answered", float(outcome.answered))
    tally.mean("completions/generated", rollout.generated_tokens)


def _add_group(tally: Tally, outcomes: Sequence[Outcome], rewards: Sequence[RewardParts | None]) -> None:
    scored = [reward.total for reward in rewards if reward is not None]
    # The spread over the rollouts that were scored: TRL's own rate counts a group with one survivor as alive.
    tally.mean("group/dead_rate", float(not differ(scored)))
    if len(scored) > 1:
        mean = sum(scored) / len(scored)
        tally.mean("group/reward_std", (sum((r - mean) ** 2 for r in scored) / (len(scored) - 1)) ** 0.5)
    if scored:
        survivors = [o for o, r in zip(outcomes, rewards, strict=True) if r is not None]
        tally.mean("group/best", max(f_beta(o.predicted, o.gold) for o in survivors))


def add_up(parts: Iterable[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """Metrics of the whole step from the sums of all workers."""
    totals: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for sums in parts:
        for name, (total, count) in sums.items():
            totals[name][0] += total
            totals[name][1] += count
    return {name: total / count if count else total for name, (total, count) in totals.items()}


def largest(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of the whole step that are a maximum over all workers; a worker that measured nothing has no entry."""
    found: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            found[name] = max(found.get(name, value), value)
    return found
