"""What a reward design sees of a rollout, and what it gives back. Plain data: no tokens, no text, no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codegrep.issues.issue import Entity, LineRange


@dataclass(frozen=True)
class Outcome:
    """How one rollout went, seen from its end.

    Attributes:
        predicted: answered files, normalised, best first, without duplicates; empty without a readable answer.
        gold: files that should be found.
        predicted_ranges: answered line ranges, in the order of the answer.
        gold_ranges: pre-image line ranges of the gold patch.
        calls_per_turn: executed calls of every assistant turn in order, the answer turn included (then usually 0).
        answered: an answer block was read.
        exit_cause: why the rollout ended.
        unique_calls_per_turn: as calls_per_turn, without calls that repeat an earlier one of the rollout; None where
            it is not known.
        malformed_calls: intended calls that could not be parsed.
        malformed_answers: answer blocks that could not be parsed, in any turn, also where a readable one followed.
        mined_files: gold files from mining alone; line ranges in them are not scored (CodeGrep, App. B).
        generated_tokens: sampled tokens.
        predicted_entities: answered classes and functions.
        gold_entities: classes and functions that the gold patch touches; None where they are not known.
        judgement: whether a judge found the answer to mean the same as the reference; None where none was asked, or
            it failed.
    """

    predicted: tuple[str, ...]
    gold: frozenset[str]
    predicted_ranges: tuple[LineRange, ...] = ()
    gold_ranges: tuple[LineRange, ...] = ()
    calls_per_turn: tuple[int, ...] = ()
    answered: bool = True
    exit_cause: str = "answer"
    unique_calls_per_turn: tuple[int, ...] | None = None
    malformed_calls: int = 0
    malformed_answers: int = 0
    mined_files: frozenset[str] = field(default=frozenset())
    generated_tokens: int = 0
    predicted_entities: tuple[Entity, ...] = ()
    gold_entities: frozenset[Entity] | None = None
    judgement: bool | None = None

    @property
    def searched(self) -> bool:
        """At least one call was executed; the indicator 1[c̄>0] of CodeGrep (arXiv 2608.05886, eq 5 and 7)."""
        return sum(self.calls_per_turn) > 0

    @property
    def turns(self) -> int:
        """Assistant turns, the answer turn included."""
        return len(self.calls_per_turn)


@dataclass(frozen=True)
class RewardParts:
    """A reward and what it is made of.

    Attributes:
        total: the reward that is trained on.
        parts: terms and factors of it by name, for curves and comparison; they need not add up to the total.
    """

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)


RewardDesign = Callable[[Outcome], RewardParts]
AdvantageFactor = Callable[[Outcome], float]
