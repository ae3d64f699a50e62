"""Scores of an answer against the gold files and lines. Pure functions; values in [0, 1] unless said otherwise."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from codegrep.issues.issue import Entity, EntityKind, LineRange

Match = Literal["coverage", "jaccard"]
# Scores and rewards no further apart are equal: the same sum in another order differs by rounding.
ROUNDING = 1e-9


def differ(values: Collection[float]) -> bool:
    """Return whether two of the values are different, rounding aside."""
    return bool(values) and max(values) - min(values) > ROUNDING


def first_best(values: Sequence[float]) -> int:
    """Return the index of the largest value; of equals, rounding aside, the first."""
    highest = max(values)
    return next(index for index, value in enumerate(values) if value >= highest - ROUNDING)


def precision(predicted: Collection[str], gold: Collection[str]) -> float:
    """Return |P∩G| / |P| over distinct entries. Both empty: 1; exactly one empty: 0."""
    answered, relevant = set(predicted), set(gold)
    return len(answered & relevant) / len(answered) if answered else float(not relevant)


def recall(predicted: Collection[str], gold: Collection[str]) -> float:
    """Return |P∩G| / |G| over distinct entries. Both empty: 1; exactly one empty: 0."""
    return precision(gold, predicted)


def f_beta(predicted: Collection[str], gold: Collection[str], beta: float = 0.5) -> float:
    """Return (1+β²)·prec·rec / (β²·prec + rec) over distinct entries (CodeGrep, arXiv 2608.05886, App. B).

    β < 1 weighs precision more than recall; the paper uses 0.5. Both empty: 1; exactly one empty, or nothing in
    common: 0.

    Raises:
        ValueError: beta is not positive.
    """
    answered, relevant = set(predicted), set(gold)
    return f_from_counts(len(answered & relevant), len(answered), len(relevant), beta)


def f_from_counts(true_positives: int, predicted: int, gold: int, beta: float = 0.5) -> float:
    """Return F-beta from counts as (1+β²)·TP / (β²·|G| + |P|), with the empty rules of `f_beta`."""
    if beta <= 0:
        raise ValueError(f"beta must be positive, got {beta}")
    if predicted == 0 and gold == 0:
        return 1.0
    squared = beta * beta
    return (1 + squared) * true_positives / (squared * gold + predicted)


def line_f_beta(
    predicted: Sequence[LineRange],
    gold: Sequence[LineRange],
    beta: float = 0.5,
    *,
    mined_files: Collection[str] = (),
    match: Match = "coverage",
    threshold: float = 0.5,
) -> float:
    """Return the line-range score (CodeGrep App. B).

    Predictions are taken in their order; each takes the first gold range, still unmatched, of the same file that it
    covers by at least `threshold`. TP = matches, then F-beta with the empty rules of `f_beta`.

    Args:
        predicted: in the order of the answer. A range that ends before it starts covers nothing and counts.
        gold: pre-image ranges of the patch.
        mined_files: predicted ranges in these files are dropped first, since mined gold files have no gold lines.
        beta: as in `f_beta`.
        match: "coverage" of the gold range, which is the paper's rule; "jaccard" is the word in its Table 6, and does
            not reward one huge range.
        threshold: least share that is a match.

    Raises:
        ValueError: unknown match, or beta is not positive.
    """
    if match not in ("coverage", "jaccard"):
        raise ValueError(f"match must be 'coverage' or 'jaccard', got {match!r}")
    scored = [span for span in predicted if span.path not in mined_files]
    unmatched = list(gold)
    matches = 0
    for span in scored:
        for index, target in enumerate(unmatched):
            if span.path == target.path and _overlap_share(span, target, match) >= threshold:
                del unmatched[index]
                matches += 1
                break
    return f_from_counts(matches, len(scored), len(gold), beta)


def entity_f_beta(
    predicted: Collection[Entity], gold: Collection[Entity], beta: float = 1.0, *, kind: EntityKind
) -> float:
    """Return the class or function score: F-beta over qualified names (colgrep, arXiv 2610.05099; CodeScout).

    Reconstructed, since neither paper states it: an answered method also answers its class. Gold decides what a name is
    where gold has it, else the answer's spelling (`codegrep.protocol.answer`).

    Args:
        predicted: as answered.
        gold: as touched by the gold patch; kinds are certain.
        beta: as in `f_beta`.
        kind: which of the two is scored.
    """
    kinds = {entity.label: entity.kind for entity in gold}
    relevant = {label for label, known in kinds.items() if known == kind}
    answers = {label for entity in predicted if (label := _of_kind(entity, kinds, kind))}
    return f_beta(answers, relevant, beta)


def module_f_beta(predicted: Collection[Entity], gold: Collection[Entity], beta: float = 1.0) -> float:
    """Return F-beta over top-level definitions (CodeScout's "module"): "a.py:Model" for any entity inside Model."""
    return f_beta({_top_level(entity) for entity in predicted}, {_top_level(entity) for entity in gold}, beta)


def _of_kind(entity: Entity, gold_kinds: Mapping[str, EntityKind], kind: EntityKind) -> str:
    own = gold_kinds.get(entity.label, entity.kind)
    if own == kind:
        return entity.label
    if kind == "function":
        return ""
    parts = entity.name.split(".")
    for end in range(len(parts) - 1, 0, -1):  # the nearest class around an answered function
        label = f"{entity.path}:{'.'.join(parts[:end])}"
        looks_like_one = parts[end - 1].lstrip("_")[:1].isupper()
        if gold_kinds.get(label) == "class" or (label not in gold_kinds and looks_like_one):
            return label
    return ""


def _top_level(entity: Entity) -> str:
    return f"{entity.path}:{entity.name.partition('.')[0]}"


def _overlap_share(span: LineRange, gold: LineRange, match: Match) -> float:
    shared = max(0, min(span.end, gold.end) - max(span.start, gold.start) + 1)
    gold_lines = max(1, gold.end - gold.start + 1)
    if match == "coverage":
        return shared / gold_lines
    return shared / (max(0, span.end - span.start + 1) + gold_lines - shared)
