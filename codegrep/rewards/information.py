"""A turn scorer without gold: how much a turn told that earlier turns had not (arXiv 2605.07276).

arXiv 2605.07276 lets a model score every step and asks it to mark steps of low information gain down, such as looking
again at regions that were seen. This is a rule in its place; values and details are reconstructed:

- A search tells something new when it shows a file that no earlier turn has shown.
- A read tells something new when it shows a line that no earlier turn's read has shown.
- A turn scores as its best call. Calls of one turn run at once: what was known before is what earlier turns told.
- A repeated call (same tool and arguments as an earlier one) tells nothing, nor does a failed or an empty one.
- A turn that submits makes no search; by default it has no score, and so keeps its weight.
"""

from __future__ import annotations

from codegrep.issues.issue import LineRange
from codegrep.rewards.turn_credit import CallFacts, RolloutFacts

_Lines = list[tuple[int, int]]  # closed intervals, disjoint, in order


def information_gain(
    trajectory: RolloutFacts,
    *,
    new: float = 1.0,
    seen: float = 0.3,
    nothing: float = 0.05,
    submission: float | None = None,
) -> list[float | None]:
    """Score of each turn.

    Args:
        trajectory: turns in order; gold is not looked at.
        new: a turn with a call that tells something new.
        seen: a turn that only shows again what was known.
        nothing: a turn whose calls are repeated, failed or empty, and one that neither calls nor submits.
        submission: a turn that submits, whatever it calls; None leaves it unscored.
    """
    listed: set[str] = set()
    read: dict[str, _Lines] = {}
    made: set[str] = set()
    scores: list[float | None] = []
    for turn in trajectory.turns:
        best, told = nothing, []
        for call in turn.calls:
            if call.key not in made and call.ok and call.paths:
                best = max(best, new if _tells_new(call, listed, read) else seen)
                told.append(call)
            made.add(call.key)
        for call in told:
            listed.update(call.paths)
            for lines in call.reads:
                read[lines.path] = _with(read.get(lines.path, []), lines)
        scores.append(best if turn.submission is None else submission)
    return scores


def _tells_new(call: CallFacts, listed: set[str], read: dict[str, _Lines]) -> bool:
    if call.reads:
        return any(not _covered(read.get(lines.path, []), lines) for lines in call.reads)
    return not listed.issuperset(call.paths)


def _covered(known: _Lines, wanted: LineRange) -> bool:
    return any(start <= wanted.start and wanted.end <= end for start, end in known)


def _with(known: _Lines, lines: LineRange) -> _Lines:
    merged: _Lines = []
    for start, end in sorted([*known, (lines.start, max(lines.start, lines.end))]):
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
