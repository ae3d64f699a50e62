"""Scores of assistant turns by what they found: credit by outcome (colgrep, arXiv 2610.05099).

The warm start weighs the turns of a demonstration by these scores, and GRPO makes token weights of them
(`codegrep.rewards.turn_scores`). The loss of the warm start is

    L_SFT = [ Σ_i w_i Σ_{t in T_i} CE_t ] / [ Σ_i w_i |T_i| ]

The paper gives the four weights and the loss. These rules are reconstructed, since it does not state them:

- A turn with several calls has the weight of its best call.
- A file is found when the model was shown it: when a line or a row of the text that it read after the turn names it
  (`codegrep.protocol.shown`), opened or not. Calls of one turn run at once, so what was found before is what earlier
  turns found.
- A call with new gold and old gold counts as new; gold beside other files counts as gold.
- A repeated call (same tool and arguments as an earlier call of the rollout, of this turn or an earlier one) has the
  weight of an empty one, whatever it returns.
- A turn that submits is the finish turn, even when it calls tools: its weight is the recall of the submission, 0 for a
  submission without a gold file. What its calls found is not credited.
- A turn that neither calls nor submits has the weight of an empty call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegrep.issues.issue import LineRange
from codegrep.metrics.scores import recall


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
    """One assistant turn.

    Attributes:
        calls: in order.
        submission: the answered files; None when the turn does not submit.
        text: as the model wrote it, for judges.
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
        statement: the issue's text, for judges.
    """

    turns: tuple[TurnFacts, ...]
    gold: frozenset[str]
    statement: str = ""

    @property
    def answered(self) -> bool:
        """Whether a turn submitted files."""
        return any(turn.submission is not None for turn in self.turns)


# One score in [0, 1] for each turn, None for a turn that is not judged. A scorer gives None in place of the list where
# the trajectory has no valid scores (a judge failed).
TurnScores = Sequence[float | None]
TurnScorer = Callable[[RolloutFacts], TurnScores | None]


def outcome_credit(
    trajectory: RolloutFacts,
    *,
    new_gold: float = 1.0,
    seen_gold: float = 0.6,
    no_gold: float = 0.3,
    empty: float = 0.05,
) -> list[float]:
    """Score every turn by what it found, the submitting one by its recall. The defaults are the paper's.

    Args:
        trajectory: without gold files, a submission counts 1 if it is empty and 0 if not.
        new_gold: of a call that shows a gold file for the first time.
        seen_gold: of a call that shows gold files, all seen before.
        no_gold: of a call that shows other files.
        empty: of a call that shows nothing, fails, or repeats an earlier one.
    """
    found: set[str] = set()
    seen_calls: set[str] = set()
    scores: list[float] = []
    for turn in trajectory.turns:
        best = 0.0 if turn.calls else empty
        found_before = frozenset(found)
        for call in turn.calls:
            hits = trajectory.gold.intersection(call.paths) if call.ok else frozenset()
            if call.key in seen_calls or not call.ok or not call.paths:
                credit = empty
            elif hits:
                credit = new_gold if hits - found_before else seen_gold
            else:
                credit = no_gold
            best = max(best, credit)
            seen_calls.add(call.key)
            found |= hits
        scores.append(best if turn.submission is None else recall(turn.submission, trajectory.gold))
    return scores
