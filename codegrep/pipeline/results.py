"""From per-issue rows to the tables of the report: one line a retriever, and paired comparisons.

Issues of one repository are alike, so repositories are the units that intervals and tests draw again. From a single
repository nothing is known about others: its issues are the units then, and `cautions` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from codegrep.metrics.bootstrap import Comparison, bootstrap_mean, compare, holm
from codegrep.metrics.retrieval import IssueScore, summarise
from codegrep.metrics.runs import few_repositories
from codegrep.tracking.rows import EvaluationRow

Kind = Literal["model", "baseline", "scripted", "oracle"]
KINDS: Mapping[str, Kind] = {
    "base": "model",
    "warm_start": "model",
    "trained": "model",
    "loaded": "model",
    "first_row": "scripted",
    "oracle": "oracle",
}
# Pairs that the report compares, better-supposed first; those whose retrievers were not measured are left out.
PAIRS = (
    ("trained", "bm25_no_tests_top1"),
    ("trained", "bm25_top1"),
    ("trained", "first_row"),
    ("trained", "warm_start"),
    ("warm_start", "bm25_no_tests_top1"),
    ("warm_start", "first_row"),
    ("warm_start", "base"),
    ("loaded", "bm25_no_tests_top1"),
    ("loaded", "bm25_top1"),
    ("loaded", "first_row"),
)


@dataclass(frozen=True)
class Pair:
    """One paired comparison of mean F0.5. equal_length: both lists cut to their first file."""

    a: str
    b: str
    equal_length: bool
    comparison: Comparison
    p_holm: float


def evaluation_rows(table: Sequence[Mapping[str, Any]], resamples: int) -> list[EvaluationRow]:
    """One row a retriever, in the order of the table; intervals resample repositories and the issues within them."""
    rows = []
    for retriever in dict.fromkeys(row["retriever"] for row in table):
        mine = [row for row in table if row["retriever"] == retriever]
        summary = summarise([_score(row) for row in mine])
        repositories = [str(row["repo"]) for row in mine]
        interval = bootstrap_mean([row["f05"] for row in mine], resamples=resamples, clusters=repositories)
        rows.append(
            EvaluationRow(
                retriever=retriever,
                kind=KINDS.get(retriever, "baseline"),
                issues=summary.issues,
                repositories=len(set(repositories)),
                f05_mean=summary.f05_mean,
                f05_low=interval.low,
                f05_high=interval.high,
                f05_median=summary.f05_median,
                precision=summary.precision,
                recall=summary.recall,
                share_08=summary.share_08,
                files=summary.files,
                turns=_mean(mine, "turns"),
                calls=_mean(mine, "calls"),
                tokens=_mean(mine, "generated_tokens"),
                seconds=_mean(mine, "seconds"),
            )
        )
    return rows


def comparisons(table: Sequence[Mapping[str, Any]], resamples: int) -> list[Pair]:
    """The pairs of PAIRS at full length and at equal length, with p-values corrected by Holm within each of the two."""
    repositories = {str(row["instance_id"]): str(row["repo"]) for row in table}
    units = repositories if len(set(repositories.values())) > 1 else None
    pairs: list[Pair] = []
    for column, equal_length in (("f05", False), ("f05_top1", True)):
        values: dict[str, dict[str, float]] = {}
        for row in table:
            values.setdefault(row["retriever"], {})[row["instance_id"]] = float(row[column])
        made = {}
        for a, b in PAIRS:
            if a in values and b in values and values[a].keys() == values[b].keys():
                made[a, b] = compare(values[a], values[b], resamples=resamples, repositories=units)
        corrected = holm({f"{a} {b}": c.p_value for (a, b), c in made.items()})
        pairs += [Pair(a, b, equal_length, c, corrected[f"{a} {b}"]) for (a, b), c in made.items()]
    return pairs


def cautions(rows: Sequence[EvaluationRow], pairs: Sequence[Pair]) -> list[str]:
    """Sentences on what cannot be shown with so few held-out repositories; none with enough of them."""
    repositories = max(row.repositories or 1 for row in rows)
    family = max(Counter(pair.equal_length for pair in pairs).values(), default=0)
    return few_repositories(repositories, family)


def _score(row: Mapping[str, Any]) -> IssueScore:
    return IssueScore(**{name: row[name] for name in IssueScore.__dataclass_fields__})


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    values = [float(row[column]) for row in rows if row[column] is not None]
    return fmean(values) if values else None
