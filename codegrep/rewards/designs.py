"""Reward designs: each a pure function of an Outcome, named in a YAML file of conf/reward.

A design of one's own is a function of this shape anywhere on the Python path (first argument an Outcome, every
parameter a keyword with a type and a default, a RewardParts as result) and a YAML file that names it.
"""

from __future__ import annotations

from codegrep.rewards.calls import calls_per_turn, excess_discount
from codegrep.rewards.outcome import Outcome, RewardParts
from codegrep.rewards.scores import Match, f_beta, line_f_beta, precision, recall


def v1(
    outcome: Outcome,
    *,
    beta: float = 0.5,
    target: float = 4.0,
    match: Match = "coverage",
    count_answer_turn: bool = False,
    count_repeated: bool = True,
) -> RewardParts:
    """R = 0.5·(F_file + F_line) / max(1, c̄/target), in [0, 1] (CodeGrep, arXiv 2608.05886, eq 4).

    Edge cases: no search does not make it 0 (the paper's formula has no such term). Without gold ranges, F_line is 1
    for an answer without ranges and 0 for one with, as the empty rules of SPEC 1.4 say.
    """
    file_f, line_f = _file_and_line(outcome, beta, match)
    mean_calls = calls_per_turn(outcome, count_answer_turn=count_answer_turn, count_repeated=count_repeated)
    discount = excess_discount(mean_calls, target)
    return _parts(outcome, 0.5 * (file_f + line_f) * discount, file_f=file_f, line_f=line_f, discount=discount)


def v2(outcome: Outcome, *, beta: float = 0.5, match: Match = "coverage") -> RewardParts:
    """R = 0.5·(F_file + F_line)·1[c̄>0], in [0, 1] (CodeGrep eq 5); goes with the advantage factor `efficiency`.

    Edge cases: an answer without any executed call gets 0, even a right one. Gold ranges empty: as in `v1`.
    """
    file_f, line_f = _file_and_line(outcome, beta, match)
    searched = float(outcome.searched)
    return _parts(outcome, 0.5 * (file_f + line_f) * searched, file_f=file_f, line_f=line_f, searched=searched)


def v3(outcome: Outcome, *, beta: float = 0.5) -> RewardParts:
    """R = F_file·1[c̄>0], in [0, 1] (CodeGrep eq 7); goes with the advantage factor `efficiency`.

    Edge cases: an answer without any executed call gets 0, even a right one; so does a rollout without an answer,
    unless the issue has no gold files (both empty is 1, SPEC 1.4).
    """
    file_f = f_beta(outcome.predicted, outcome.gold, beta)
    searched = float(outcome.searched)
    return _parts(outcome, file_f * searched, file_f=file_f, searched=searched)


def swe_grep(
    outcome: Outcome, *, beta: float = 0.5, match: Match = "coverage", malformed_is_zero: bool = True
) -> RewardParts:
    """R = 0.5·(F_file + F_line), and 0 for a malformed call or answer (Cognition, SWE-grep blog post of 16 Oct 2025).

    The post names "weighted F1" over files and lines and gives β = 0.5 for its evaluation; that the reward has the same
    β is reconstructed. A rollout without a readable answer counts as malformed. malformed_is_zero=False leaves that
    rule out.
    """
    file_f, line_f = _file_and_line(outcome, beta, match)
    well_formed = float(outcome.answered and outcome.malformed_calls == 0)
    total = 0.5 * (file_f + line_f) * (well_formed if malformed_is_zero else 1.0)
    return _parts(outcome, total, file_f=file_f, line_f=line_f, well_formed=well_formed)


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
