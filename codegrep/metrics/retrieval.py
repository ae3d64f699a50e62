"""Quality of ranked files against gold files: per issue, then as macro means (CodeGrep, arXiv 2608.05886, section 4).

A longer list has more chances of recall and fewer of precision, so lists of different length are compared at equal
length too: `score_issue(..., k=1)` cuts both before scoring.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from codegrep.metrics.scores import ROUNDING, f_beta, precision, recall

CUTS = (1, 5, 10, 20)
AT_CUTS = tuple(f"{measure}_at_{k}" for measure in ("hit", "recall", "precision") for k in CUTS)
GOOD = 0.8  # the paper's "share F >= 0.8"


@dataclass(frozen=True)
class IssueScore:
    """One retriever on one issue; numbers in [0, 1] unless said otherwise.

    Attributes:
        instance_id, repo: of the issue; scores of two retrievers are paired by the first and clustered by the second.
        f05, f1: file F-beta with β = 0.5 and 1.
        precision, recall: of files. An empty list has 0 for all three, unless there are no gold files either.
        hit: 1.0 when at least one gold file is in the list.
        good: 1.0 when f05 >= 0.8.
        files: length of the list.
    """

    instance_id: str
    repo: str
    f05: float
    f1: float
    precision: float
    recall: float
    hit: float
    good: float
    files: int


@dataclass(frozen=True)
class Summary:
    """One retriever over all issues: plain means over issues (macro), named as in the tracking catalogue.

    Attributes:
        issues: number of issues.
        f05_mean, f05_median: of IssueScore.f05.
        f1, precision, recall, hit: means.
        share_08: share of issues with f05 >= 0.8.
        files: mean length of the list.
    """

    issues: int
    f05_mean: float
    f05_median: float
    f1: float
    precision: float
    recall: float
    hit: float
    share_08: float
    files: float


def score_issue(
    instance_id: str, repo: str, files: Sequence[str], gold: Collection[str], *, k: int | None = None
) -> IssueScore:
    """Score a list of files for one issue.

    Args:
        instance_id, repo: of the issue.
        files: repo-relative paths, best first; a repeated path counts once, at its first place.
        gold: gold files.
        k: score only the first k distinct files; None scores all.
    """
    listed = tuple(dict.fromkeys(files))[:k]
    f05 = f_beta(listed, gold, 0.5)
    return IssueScore(
        instance_id=instance_id,
        repo=repo,
        f05=f05,
        f1=f_beta(listed, gold, 1.0),
        precision=precision(listed, gold),
        recall=recall(listed, gold),
        hit=float(bool(set(listed) & set(gold))),
        good=float(f05 >= GOOD - ROUNDING),
        files=len(listed),
    )


def at_cuts(files: Sequence[str], gold: Collection[str]) -> dict[str, float]:
    """Score the first k files of a ranking for each k of CUTS.

    Returns:
        hit_at_k (1.0 where one of them is gold), recall_at_k (share of gold), precision_at_k (gold files by k).
    """
    listed, relevant = list(dict.fromkeys(files)), set(gold)
    scores = {}
    for k in CUTS:
        found = len(relevant.intersection(listed[:k]))
        scores[f"hit_at_{k}"] = float(found > 0)
        scores[f"recall_at_{k}"] = recall(listed[:k], relevant)
        scores[f"precision_at_{k}"] = found / k
    return scores


def summarise(scores: Sequence[IssueScore]) -> Summary:
    """Return macro means over issues.

    Raises:
        ValueError: no issue at all, or an issue twice.
    """
    if not scores:
        raise ValueError("there is no issue to summarise")
    if len({score.instance_id for score in scores}) < len(scores):
        raise ValueError("an issue is scored twice; take the mean over its seeds first")
    return Summary(
        issues=len(scores),
        f05_mean=fmean(score.f05 for score in scores),
        f05_median=median(score.f05 for score in scores),
        f1=fmean(score.f1 for score in scores),
        precision=fmean(score.precision for score in scores),
        recall=fmean(score.recall for score in scores),
        hit=fmean(score.hit for score in scores),
        share_08=fmean(score.good for score in scores),
        files=fmean(score.files for score in scores),
    )
