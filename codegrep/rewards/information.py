"""A turn scorer without gold: how much a turn showed that earlier turns had not (arXiv 2605.07276).

The paper lets a model score every step and asks it to mark down steps of low information gain, such as looking again at
known regions. This is a rule in its place; values and details are reconstructed:

- A search is new when it shows a file that no earlier turn has shown.
- A read is new when it shows a line that no earlier turn's read has shown.
- A turn scores as its best call. Calls of one turn run at once, so only earlier turns count as known.
- A repeated call (same tool and arguments as an earlier one) shows nothing, nor does a failed or an empty one.
- A turn that submits has no score by default, and so keeps its weight.
"""

from __future__ import annotations

from codegrep.rewards.turn_credit import CallFacts, RolloutFacts


def information_gain(
    trajectory: RolloutFacts,
    *,
    new: float = 1.0,
    seen: float = 0.3,
    nothing: float = 0.05,
    submission: float | None = None,
) -> list[float | None]:
    """Score each turn.

    Args:
        trajectory: turns in order; gold is not used.
        new: of a turn with a call that shows something new.
        seen: of a turn that only shows what was known.
        nothing: of a turn whose calls are repeated, failed or empty, and of one that neither calls nor submits.
        submission: of a turn that submits, whatever it calls; None leaves it unscored.
    """
    known: set[str | tuple[str, int]] = set()
    seen_calls: set[str] = set()
    scores: list[float | None] = []
    for turn in trajectory.turns:
        best, shown = nothing, set[str | tuple[str, int]]()
        for call in turn.calls:
            if call.key not in seen_calls and call.ok and call.paths:
                best = max(best, seen if known.issuperset(_lines(call) or call.paths) else new)
                shown.update(call.paths, _lines(call))
            seen_calls.add(call.key)
        known |= shown
        scores.append(best if turn.submission is None else submission)
    return scores


def _lines(call: CallFacts) -> set[tuple[str, int]]:
    """Return (path, line) of each line that a read has shown; none for a search."""
    return {(span.path, line) for span in call.reads for line in range(span.start, span.end + 1)}
