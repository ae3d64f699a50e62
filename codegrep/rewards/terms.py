"""Terms of a reward that are about the form of a rollout, not about what was found. Pure functions."""

from __future__ import annotations

from codegrep.rewards.outcome import Outcome


def turn_discount(turns: int, *, free: int = 2, cost: float = 0.01, most: float = 0.08) -> float:
    """1 - min(most, cost·max(0, T - free)), in [1 - most, 1], never rising in T (colgrep, arXiv 2610.05099).

    Args:
        turns: assistant turns of the rollout, the answer turn included.
        free: T0, turns that cost nothing. cost: λ, of each turn beyond. most: p_max, the largest deduction.
    """
    return 1.0 - min(most, cost * max(0, turns - free))


def format_penalty(outcome: Outcome, penalty: float = 0.5) -> float:
    """-penalty for a rollout that made no search or gave no readable answer, else 0 (colgrep, arXiv 2610.05099)."""
    return 0.0 if outcome.searched and outcome.answered else -penalty


def well_formed(outcome: Outcome) -> float:
    """1 for a readable answer and no call or answer block that could not be read in any turn, else 0 (SWE-grep)."""
    return float(outcome.answered and outcome.malformed_calls == 0 and outcome.malformed_answers == 0)


def turn_bonus(turns: int, *, wanted: int = 4, bonus: float = 1.0) -> float:
    """`bonus` for a rollout of exactly `wanted` turns, else 0 (CodeScout, its 14B model)."""
    return bonus if turns == wanted else 0.0
