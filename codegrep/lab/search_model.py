"""A small model of searching for the bandit: what a behaviour finds and costs. Every number is an assumption.

An issue has two gold files. A behaviour says how many turns search, how many calls each makes, how many of them repeat,
whether the last one reads for line ranges, and how many files are answered. From this follow, in closed form, the
outcomes it can have and their probabilities:

- Knowledge grows with the distinct calls of a turn, ever less so, for the calls of one turn do not see each other's
  results: k = Σ_turns d^γ. A gold file is found with probability 1 - exp(-k / difficulty), independently.
- An answer lists found files first and fills up with wrong ones; without any it names a wrong one.
- Lines of a found file are right with a fixed probability when the behaviour reads, and are not answered otherwise.
- Tokens are a base, so many a turn, a call, an answered file and a read; a rollout runs out of its budget with a
  probability that rises smoothly around it, and then has no answer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegrep.issues.issue import Entity, LineRange
from codegrep.rewards.outcome import Outcome

GOLD = ("gold_0.py", "gold_1.py")
_RANGES = {path: LineRange(path, 10, 20) for path in GOLD}
_ENTITIES = {path: Entity(path, "Model.save", "function") for path in GOLD}
_CLASSES = {path: Entity(path, "Model", "class") for path in GOLD}


@dataclass(frozen=True)
class Assumptions:
    """Numbers of the model; the module's docstring says how they are used.

    Attributes:
        difficulties: of the kinds of issues, equally frequent.
        gamma: exponent of a turn's distinct calls.
        read_gain: what a read adds to knowledge, in calls.
        lines_right: probability that the lines of a found file are right after reading.
        base, per_turn, per_call, per_file, per_read: sampled tokens.
        budget: tokens of a rollout.
        budget_width: of the smooth step around the budget.
    """

    difficulties: tuple[float, ...] = (1.5, 4.0)
    gamma: float = 0.6
    read_gain: float = 0.3
    lines_right: float = 0.6
    base: int = 60
    per_turn: int = 30
    per_call: int = 28
    per_file: int = 14
    per_read: int = 160
    budget: int = 900
    budget_width: float = 60.0


@dataclass(frozen=True)
class Behaviour:
    """One arm of the bandit.

    Attributes:
        turns: that search; 0 answers at once.
        calls: of each of them.
        repeats: every second call repeats one of the same turn.
        reads: the last turn also reads, and the answer has line ranges and names of functions.
        files: answered.
    """

    turns: int
    calls: int
    repeats: bool
    reads: bool
    files: int

    @property
    def distinct(self) -> int:
        """Distinct calls of a turn."""
        return math.ceil(self.calls / 2) if self.repeats else self.calls


@dataclass(frozen=True)
class Chance:
    """An outcome and its probability."""

    outcome: Outcome
    probability: float


def behaviours() -> list[Behaviour]:
    """Return all arms: 1-3 turns of 1, 2, 4 or 8 calls, with and without repeats and reads, 1 or 3 files; no search."""
    arms = [
        Behaviour(turns, calls, repeats, reads, files)
        for turns, calls, repeats, reads, files in itertools.product(
            (1, 2, 3), (1, 2, 4, 8), (False, True), (False, True), (1, 3)
        )
        if calls > 1 or not repeats
    ]
    return [Behaviour(0, 0, False, False, files) for files in (1, 3)] + arms


def chances(arm: Behaviour, difficulty: float, model: Assumptions) -> list[Chance]:
    """Return every outcome of one behaviour on one kind of issue; the probabilities add up to 1."""
    knowledge = arm.turns * arm.distinct**model.gamma + (model.read_gain if arm.reads else 0.0)
    found = 1.0 - math.exp(-knowledge / difficulty) if arm.turns else 0.05
    tokens = tokens_of(arm, model)
    out = 0.5 + 0.5 * math.tanh((tokens - model.budget) / (2 * model.budget_width))
    possible = [Chance(_outcome(arm, (), (), tokens, answered=False), out)]
    for hits in itertools.product((True, False), repeat=len(GOLD)):
        named = [path for path, hit in zip(GOLD, hits, strict=True) if hit][: arm.files]
        probability = math.prod(found if hit else 1.0 - found for hit in hits) * (1.0 - out)
        for right, share in _lines(named if arm.reads else [], model.lines_right):
            possible.append(Chance(_outcome(arm, named, right, tokens, answered=True), probability * share))
    return possible


def tokens_of(arm: Behaviour, model: Assumptions) -> int:
    """Return the sampled tokens of a behaviour."""
    calls = arm.turns * arm.calls
    return (
        model.base
        + model.per_turn * (arm.turns + 1)
        + model.per_call * calls
        + model.per_file * arm.files
        + model.per_read * arm.reads
    )


def _lines(named: Sequence[str], right: float) -> Iterator[tuple[tuple[str, ...], float]]:
    for hits in itertools.product((True, False), repeat=len(named)):
        paths = tuple(path for path, hit in zip(named, hits, strict=True) if hit)
        yield paths, math.prod(right if hit else 1.0 - right for hit in hits)


def _outcome(arm: Behaviour, named: Sequence[str], lines: Sequence[str], tokens: int, *, answered: bool) -> Outcome:
    files = [*named, *(f"wrong_{n}.py" for n in range(arm.files - len(named)))] if answered else []
    read = files if answered and arm.reads else []
    ranges = [_RANGES[path] if path in lines else LineRange(path, 500, 510) for path in read]
    entities = [_ENTITIES[path] if path in lines else Entity(path, "other", "function") for path in read]
    calls = (*(arm.calls + (arm.reads and turn == arm.turns - 1) for turn in range(arm.turns)), 0)
    unique = (*(arm.distinct + (arm.reads and turn == arm.turns - 1) for turn in range(arm.turns)), 0)
    return Outcome(
        predicted=tuple(files),
        gold=frozenset(GOLD),
        predicted_ranges=tuple(ranges),
        gold_ranges=tuple(_RANGES.values()),
        calls_per_turn=tuple(min(int(count), 8) for count in calls),
        answered=answered,
        exit_cause="answer" if answered else "max_tokens",
        unique_calls_per_turn=tuple(min(int(count), 8) for count in unique),
        generated_tokens=tokens,
        predicted_entities=tuple(entities),
        gold_entities=frozenset([*_ENTITIES.values(), *_CLASSES.values()]),
    )
