"""What a reward design looks at beyond files and calls, found by trying it: also true of a user's own design."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from codegrep.issues.issue import Entity, LineRange
from codegrep.rewards.outcome import Outcome, RewardDesign

Need = Literal["line_ranges", "entities", "judgement", "form"]

_METHOD = Entity("a.py", "A.go", "function")
_GOOD = Outcome(
    predicted=("a.py",),
    gold=frozenset({"a.py"}),
    predicted_ranges=(LineRange("a.py", 2, 3),),
    gold_ranges=(LineRange("a.py", 2, 3),),
    calls_per_turn=(4, 4, 0),
    unique_calls_per_turn=(4, 4, 0),
    generated_tokens=200,
    predicted_entities=(_METHOD,),
    gold_entities=frozenset({Entity("a.py", "A", "class"), _METHOD}),
    judgement=True,
)
_WITHOUT: dict[Need, Outcome] = {
    "line_ranges": replace(_GOOD, predicted_ranges=()),
    "entities": replace(_GOOD, predicted_entities=()),
    "judgement": replace(_GOOD, judgement=None),
    "form": replace(_GOOD, malformed_answers=1),
}


def needs(design: RewardDesign) -> frozenset[Need]:
    """Return what a reward depends on: what changes the reward of a good rollout when it is taken away.

    "form" means that every answer block can be read.
    """
    whole = design(_GOOD).total
    return frozenset(need for need, outcome in _WITHOUT.items() if design(outcome).total != whole)
