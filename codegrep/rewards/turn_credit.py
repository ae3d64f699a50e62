"""Scores of assistant turns, and the first rule that gives them: credit by outcome (colgrep, arXiv 2610.05099).

A turn scorer is used twice: the warm start weighs the turns of a demonstration by it (SPEC 3.3), and GRPO makes token
weights of it (`codegrep.rewards.process_weights`). The loss of the warm start is

    L_SFT = [ Σ_i w_i Σ_{t in T_i} CE_t ] / [ Σ_i w_i |T_i| ]

The paper gives the four weights and the loss. These rules are reconstructed, for it does not state them:

- A turn with several calls has the weight of its best call.
- A file is found when the model was shown it: when a line or a row of the text that it read after the turn names it
  (`codegrep.protocol.shown`), opened or not. Calls of one turn run at once, so what was found before is what earlier
  turns found.
- A call with new gold and old gold counts as new; gold beside other files counts as gold.
- A repeated call (same tool and arguments as an earlier call of the rollout, of this turn or an earlier one) has the
  weight of an empty one, whatever it returns.
- A turn that submits is the finish turn, also when it calls tools: its weight is the recall of the submission, 0 for a
  submission without a gold file. What its calls found is not credited.
- A turn that neither calls nor submits has the weight of an empty call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from codegrep.issues.issue import LineRange
from codegrep.metrics.scores import recall


@dataclass(frozen=True)
class CreditWeights:
    """Weight of a call by what it found; the defaults are the paper's."""

    new_gold: float = 1.0
    seen_gold: float = 0.6
    no_gold: float = 0.3
    empty: float = 0.05


@dataclass(frozen=True)
class CallFacts:
    """One call.

    Attributes:
        key: equal for calls with the same tool and arguments.
        paths: repo-relative paths that the model was shown for this call.
        ok: the tool ran; False for malformed, refused and failed calls.
        reads: lines of files that the result shows; empty for a search.
    """

    key: str
    paths: tuple[str, ...]
    ok: bool = True
    reads: tuple[LineRange, ...] = ()


@dataclass(frozen=True)
class TurnFacts:
    """One assistant turn. submission: the answered files, None when the turn does not submit. text: as it was written,
    for judges.
    """

    calls: tuple[CallFacts, ...] = ()
    submission: tuple[str, ...] | None = None
    text: str = ""


@dataclass(frozen=True)
class RolloutFacts:
    """What a turn scorer sees of one rollout.

    Attributes:
        turns: assistant turns in order.
        gold: gold files of the issue.
        statement: the issue's text, for judges; "" where it is not at hand.
    """

    turns: tuple[TurnFacts, ...]
    gold: frozenset[str]
    statement: str = ""

    @property
    def answered(self) -> bool:
        """A turn submitted files."""
        return any(turn.submission is not None for turn in self.turns)


# One score in [0, 1] for each turn, None for a turn that is not judged; None in place of the list where the whole
# trajectory has no valid scores (a judge failed).
TurnScores = Sequence[float | None]
TurnScorer = Callable[[RolloutFacts], TurnScores | None]


def outcome_credit(
    trajectory: RolloutFacts,
    *,
    new_gold: float = 1.0,
    seen_gold: float = 0.6,
    no_gold: float = 0.3,
    empty: float = 0.05,
) -> list[float | None]:
    """`turn_weights` as a turn scorer: every turn by what it found, the submitting one by its recall."""
    credit = CreditWeights(new_gold, seen_gold, no_gold, empty)
    return list(turn_weights(trajectory.turns, trajectory.gold, credit))


def turn_weights(
    turns: Sequence[TurnFacts], gold: Collection[str], weights: CreditWeights | None = None
) -> list[float]:
    """Weight of every turn, in order, each in [0, largest weight]; the rules are in the module's text.

    Args:
        turns: assistant turns of one trajectory.
        gold: gold files of the issue. Without any, a submission counts 1 if it is empty and 0 if not (SPEC 1.4).
        weights: None takes the paper's.
    """
    credit = weights or CreditWeights()
    wanted = frozenset(gold)
    found: set[str] = set()
    made: set[str] = set()
    result: list[float] = []
    for turn in turns:
        best = 0.0 if turn.calls else credit.empty
        found_before = frozenset(found)
        for call in turn.calls:
            best = max(best, _call_credit(call, wanted, found_before, repeated=call.key in made, credit=credit))
            made.add(call.key)
            if call.ok:
                found |= wanted.intersection(call.paths)
        result.append(best if turn.submission is None else recall(turn.submission, wanted))
    return result


def weighted_token_count(weights: Sequence[float], tokens: Sequence[int]) -> float:
    """Σ w_i·|T_i|, by which the weighted SFT loss is divided: a batch's own, so turns of weight 0 do not thin it out.

    Args:
        weights: (n,) weight of each turn.
        tokens: (n,) sampled tokens of each turn.
    """
    return sum(weight * count for weight, count in zip(weights, tokens, strict=True))


def _call_credit(
    call: CallFacts, gold: frozenset[str], found_before: frozenset[str], *, repeated: bool, credit: CreditWeights
) -> float:
    if repeated or not call.ok or not call.paths:
        return credit.empty
    hits = gold.intersection(call.paths)
    if hits - found_before:
        return credit.new_gold
    return credit.seen_gold if hits else credit.no_gold
