"""c̄, the mean number of calls a turn, and the two functions of it in the designs (CodeGrep eq 3 to 8)."""

from __future__ import annotations

import math

from codegrep.rewards.outcome import Outcome


def calls_per_turn(outcome: Outcome, *, count_answer_turn: bool = False, count_repeated: bool = True) -> float:
    """Return c̄ = C_total / T of one rollout; 0 when nothing was executed (CodeGrep, arXiv 2608.05886, eq 3).

    The paper says neither whether the answer turn is one of the T turns nor what a repeated call counts.

    Args:
        outcome: the rollout.
        count_answer_turn: False, T is the turns that issued at least one executed call, so that c̄ can reach the paper's
            bound of 8. True, T is all assistant turns: with 3 turns of exploration and 1 of answer, c̄ <= 6.
        count_repeated: False leaves calls out of C_total that repeat an earlier one; T is not changed by it, so
            repeating a call does not help.

    Raises:
        ValueError: count_repeated is False and the outcome does not know which calls are repeated.
    """
    turns = outcome.turns if count_answer_turn else sum(1 for calls in outcome.calls_per_turn if calls > 0)
    if count_repeated:
        total = sum(outcome.calls_per_turn)
    elif outcome.unique_calls_per_turn is None:
        raise ValueError("count_repeated=False needs Outcome.unique_calls_per_turn, which this rollout does not have")
    else:
        total = sum(outcome.unique_calls_per_turn)
    return total / turns if turns else 0.0


def parallelism_share(mean_calls: float, target: float = 4.0) -> float:
    """Return s(c̄) = sqrt(min(c̄/target, 1)), in [0, 1], never falling in c̄ (CodeGrep eq 6 and 8, target 4)."""
    _check_positive(target)
    return math.sqrt(min(max(mean_calls, 0.0) / target, 1.0))


def excess_discount(mean_calls: float, target: float = 4.0) -> float:
    """Return σ(c̄) = 1 / max(1, c̄/target), in (0, 1], never rising in c̄ (CodeGrep eq 4, v1, target 4).

    Unlike `parallelism_share`, it discounts more than 4 calls a turn, not fewer.
    """
    _check_positive(target)
    return 1.0 / max(1.0, mean_calls / target)


def _check_positive(target: float) -> None:
    if target <= 0:
        raise ValueError(f"target must be positive, got {target}")
