"""Reward designs: each a pure function of an Outcome, named in a YAML file of conf/reward.

Your own design is a function of this shape anywhere on the Python path (first argument an Outcome, every parameter a
keyword with a type and a default, a RewardParts as result) and a YAML file that names it.
"""

from __future__ import annotations

from typing import Literal

from codegrep.issues.issue import EntityKind
from codegrep.metrics.scores import Match, entity_f_beta, f_beta, line_f_beta, module_f_beta, precision, recall
from codegrep.rewards.calls import calls_per_turn, excess_discount
from codegrep.rewards.outcome import Outcome, RewardParts

Task = Literal["f1", "f2", "entities"]
Check = Literal["answered", "hit"]
Judge = Literal["answer_judge", "score"]

# Parts that every design reports and none is made of.
OBSERVED = frozenset({"precision", "recall"})


def v1(
    outcome: Outcome,
    *,
    beta: float = 0.5,
    target: float = 4.0,
    match: Match = "coverage",
    count_answer_turn: bool = False,
    count_repeated: bool = True,
) -> RewardParts:
    """Return R = 0.5·(F_file + F_line) / max(1, c̄/target), in [0, 1] (CodeGrep, arXiv 2608.05886, eq 4).

    Edge cases: no search does not make it 0 (the paper's formula has no such term). Without gold ranges, F_line is 1
    for an answer without ranges and 0 for one with, as the rules for empty sets say (CodeGrep, App. B).
    """
    file_f, line_f = _file_and_line(outcome, beta, match)
    mean_calls = calls_per_turn(outcome, count_answer_turn=count_answer_turn, count_repeated=count_repeated)
    discount = excess_discount(mean_calls, target)
    return _parts(outcome, 0.5 * (file_f + line_f) * discount, file_f=file_f, line_f=line_f, discount=discount)


def v2(outcome: Outcome, *, beta: float = 0.5, match: Match = "coverage") -> RewardParts:
    """Return R = 0.5·(F_file + F_line)·1[c̄>0], in [0, 1] (CodeGrep eq 5); goes with the advantage factor `efficiency`.

    Edge cases: an answer without any executed call gets 0, even a right one. Gold ranges empty: as in `v1`.
    """
    file_f, line_f = _file_and_line(outcome, beta, match)
    searched = float(outcome.searched)
    return _parts(outcome, 0.5 * (file_f + line_f) * searched, file_f=file_f, line_f=line_f, searched=searched)


def v3(outcome: Outcome, *, beta: float = 0.5) -> RewardParts:
    """Return R = F_file·1[c̄>0], in [0, 1] (CodeGrep eq 7); goes with the advantage factor `efficiency`.

    Edge cases: an answer without any executed call gets 0, even a right one; so does a rollout without an answer,
    unless the issue has no gold files (both empty is 1, CodeGrep, App. B).
    """
    file_f = f_beta(outcome.predicted, outcome.gold, beta)
    searched = float(outcome.searched)
    return _parts(outcome, file_f * searched, file_f=file_f, searched=searched)


def swe_grep(
    outcome: Outcome, *, beta: float = 0.5, match: Match = "coverage", malformed_is_zero: bool = True
) -> RewardParts:
    """Return R = 0.5·(F_file + F_line), or 0 for a malformed call or answer (Cognition, SWE-grep post of 16 Oct 2025).

    The post names "weighted F1" over files and lines and gives β = 0.5 for its evaluation; that the reward has the same
    β is reconstructed. One call or answer block that cannot be read makes the reward 0 wherever it stands, also before
    a readable answer; so does a rollout without a readable answer. malformed_is_zero=False leaves that rule out.
    """
    file_f, line_f = _file_and_line(outcome, beta, match)
    form = float(outcome.answered and outcome.malformed_calls == 0 and outcome.malformed_answers == 0)
    total = 0.5 * (file_f + line_f) * (form if malformed_is_zero else 1.0)
    return _parts(outcome, total, file_f=file_f, line_f=line_f, well_formed=form)


def colgrep(
    outcome: Outcome,
    *,
    task: Task = "f1",
    free_turns: int = 2,
    turn_cost: float = 0.01,
    most_turn_cost: float = 0.08,
    penalty: float = 0.5,
) -> RewardParts:
    """Return R = R_task·(1 - min(most, cost·max(0, T - free))) + R_format (colgrep, arXiv 2610.05099).

    R_task is the file F1 ("f1"), the file F2 ("f2"), or the sum of file, class and function F1 ("entities"), which is
    the file F1 alone where the issue's entities are not known (the paper: languages other than Python). R_format is
    -penalty without a search or without a readable answer. Bounds: [-penalty, 1], with entities [-penalty, 3].

    Edge cases: T counts the answer turn. The discount acts on R_task alone, so it never softens the penalty.
    """
    if task not in ("f1", "f2", "entities"):
        raise ValueError(f"task must be 'f1', 'f2' or 'entities', got {task!r}")
    terms = {"file_f": f_beta(outcome.predicted, outcome.gold, 2.0 if task == "f2" else 1.0)}
    if task == "entities":
        terms |= {
            "class_f": _entity_f(outcome, "class"),
            "function_f": _entity_f(outcome, "function"),
        }
    discount = 1.0 - min(most_turn_cost, turn_cost * max(0, outcome.turns - free_turns))
    form = 0.0 if outcome.searched and outcome.answered else -penalty
    return _parts(outcome, sum(terms.values()) * discount + form, **terms, turn_discount=discount, format=form)


def codescout(
    outcome: Outcome, *, beta: float = 1.0, bonus: float = 0.0, bonus_turns: int = 4, empty_is_zero: bool = True
) -> RewardParts:
    """Return R = F_file + F_module + F_entity, in [0, 3], and `bonus` for exactly `bonus_turns` turns (CodeScout).

    A module is a top-level class or function, an entity a class or function by its whole name (that an entity is
    either of them is reconstructed). The paper's 14B model had bonus 1. empty_is_zero: a term without gold is 0, also
    for an empty answer. Where the issue's entities are not known both terms are 0.
    """
    gold, predicted = outcome.gold_entities or frozenset(), outcome.predicted_entities
    file_f = f_beta(outcome.predicted, outcome.gold, beta)
    module_f = module_f_beta(predicted, gold, beta)
    entity_f = f_beta([e.label for e in predicted], [e.label for e in gold], beta)
    if empty_is_zero and not outcome.gold:
        file_f = 0.0
    if outcome.gold_entities is None or (empty_is_zero and not gold):
        module_f = entity_f = 0.0
    extra = bonus if outcome.turns == bonus_turns else 0.0
    total = file_f + module_f + entity_f + extra
    return _parts(outcome, total, file_f=file_f, module_f=module_f, entity_f=entity_f, turn_bonus=extra)


def tiered(
    outcome: Outcome, *, check: Check = "hit", judge: Judge = "answer_judge", beta: float = 0.5, threshold: float = 0.8
) -> RewardParts:
    """Return R = r_check + r_judge, each 0 or 0.5; the second only after the first (arXiv 2605.07276).

    The paper's tasks are repairs: r_check is "it compiles", r_judge a language model's comparison with a minimal
    repair. For retrieval (reconstructed): the check is a readable answer ("answered"), with a gold file in it ("hit");
    the judge is `Outcome.judgement` ("answer_judge"), or, without a judge, file F-beta >= threshold ("score").

    Edge cases: a judge that was not asked or failed gives the check's half, as in the paper.
    """
    if check not in ("answered", "hit") or judge not in ("answer_judge", "score"):
        raise ValueError(f"unknown check {check!r} or judge {judge!r}")
    hit = not outcome.gold or not outcome.gold.isdisjoint(outcome.predicted)
    checked = outcome.answered and (check == "answered" or hit)
    file_f = f_beta(outcome.predicted, outcome.gold, beta)
    agreed = outcome.judgement is True if judge == "answer_judge" else file_f >= threshold
    first, second = 0.5 * checked, 0.5 * (checked and agreed)
    return _parts(outcome, first + second, check=first, judge=second, file_f=file_f)


def _entity_f(outcome: Outcome, kind: EntityKind) -> float:
    if outcome.gold_entities is None:
        return 0.0
    return entity_f_beta(outcome.predicted_entities, outcome.gold_entities, kind=kind)


def _file_and_line(outcome: Outcome, beta: float, match: Match) -> tuple[float, float]:
    file_f = f_beta(outcome.predicted, outcome.gold, beta)
    line_f = line_f_beta(
        outcome.predicted_ranges, outcome.gold_ranges, beta, mined_files=outcome.mined_files, match=match
    )
    return file_f, line_f


def _parts(outcome: Outcome, total: float, **terms: float) -> RewardParts:
    # Precision and recall are in no formula here, but every design's curves can be compared by them.
    common = {
        "precision": precision(outcome.predicted, outcome.gold),
        "recall": recall(outcome.predicted, outcome.gold),
    }
    return RewardParts(total, {**terms, **common})
