"""From per-issue rows to the tables of the report: one line a retriever, and paired comparisons.

Issues of one repository are alike, so repositories are the units that intervals and tests draw again. From a single
repository nothing is known about others: its issues are the units then, and `cautions` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np

from codegrep.metrics.bootstrap import Comparison, Interval, bootstrap_mean, compare, holm
from codegrep.metrics.retrieval import AT_CUTS, IssueScore, summarise
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
    "oracle_met": "oracle",
}
# What a model is compared with beside the first file of every ranking.
BESIDE: Mapping[str, tuple[str, ...]] = {
    "trained": ("first_row", "warm_start"),
    "warm_start": ("first_row", "base"),
    "loaded": ("first_row",),
}
REFERENCE = "bm25_no_tests_top1"  # what every other ranking is compared with


WHOLE, FIRST_FILE, MINED = "whole list", "first file", "mined targets"
# What is compared, and its column: whole lists, both lists cut to their first file, whole lists against mined targets.
ON = {WHOLE: "f05", FIRST_FILE: "f05_top1", MINED: "f05_mined"}


@dataclass(frozen=True)
class Pair:
    """One paired comparison of mean F0.5. on: a key of ON. repositories: that its issues come from."""

    a: str
    b: str
    on: str
    repositories: int
    comparison: Comparison
    p_holm: float


def evaluation_rows(table: Sequence[Mapping[str, Any]], resamples: int) -> list[EvaluationRow]:
    """One row a retriever, in the order of the table; intervals resample repositories and the issues within them."""
    rows = []
    for retriever in dict.fromkeys(row["retriever"] for row in table):
        mine = [row for row in table if row["retriever"] == retriever]
        summary = summarise([_score(row) for row in mine])
        interval = _interval(mine, "f05", resamples)
        mined = [row for row in mine if row.get("f05_mined") is not None]
        against_mined = _interval(mined, "f05_mined", resamples) if mined else None
        rows.append(
            EvaluationRow(
                retriever=retriever,
                kind=_kind(mine[0]),
                issues=summary.issues,
                repositories=len({row["repo"] for row in mine}),
                f05_mean=summary.f05_mean,
                f05_low=interval.low,
                f05_high=interval.high,
                f05_median=summary.f05_median,
                f05_top1=_mean(mine, "f05_top1"),
                f1=summary.f1,
                precision=summary.precision,
                recall=summary.recall,
                share_08=summary.share_08,
                hit=summary.hit,
                files=summary.files,
                turns=_mean(mine, "turns"),
                calls=_mean(mine, "calls"),
                tokens=_mean(mine, "generated_tokens"),
                seconds_per_issue=_mean(mine, "seconds_per_issue"),
                latency_seconds=_mean(mine, "latency_seconds"),
                latency_issues=_count(mine, "latency_seconds"),
                query_seconds_p50=_quantile(mine, "query_seconds", 0.5),
                query_seconds_p95=_quantile(mine, "query_seconds", 0.95),
                index_seconds=_mean(mine, "index_seconds"),
                index_bytes=_mean(mine, "index_bytes"),
                at={name: value for name in AT_CUTS if (value := _mean(mine, name)) is not None},
                f05_mined=against_mined.estimate if against_mined else None,
                f05_mined_low=against_mined.low if against_mined else None,
                f05_mined_high=against_mined.high if against_mined else None,
                mined_issues=_count(mine, "f05_mined"),
                line_f05=_mean(mine, "line_f05"),
                line_issues=_count(mine, "line_f05"),
                class_f1=_mean(mine, "class_f1"),
                class_issues=_count(mine, "class_f1"),
                function_f1=_mean(mine, "function_f1"),
                function_issues=_count(mine, "function_f1"),
            )
        )
    return rows


def comparisons(table: Sequence[Mapping[str, Any]], resamples: int) -> list[Pair]:
    """Models against others, rankings against BM25, on each of ON, with p-values corrected by Holm within each."""
    ranked = _ranked(table)
    pairs: list[Pair] = []
    for on, column in ON.items():
        measured = [row for row in table if row.get(column) is not None]
        repositories = {str(row["instance_id"]): str(row["repo"]) for row in measured}
        count = len(set(repositories.values()))
        units = repositories if count > 1 else None
        values: dict[str, dict[str, float]] = {}
        for row in measured:
            values.setdefault(row["retriever"], {})[row["instance_id"]] = float(row[column])
        made = {}
        for a, b in _pairs(values, ranked):
            if values[a].keys() == values[b].keys():
                made[a, b] = compare(values[a], values[b], resamples=resamples, repositories=units)
        corrected = holm({f"{a} {b}": c.p_value for (a, b), c in made.items()})
        pairs += [Pair(a, b, on, count, c, corrected[f"{a} {b}"]) for (a, b), c in made.items()]
    return pairs


def _ranked(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the first files of the rankings that were measured, BM25's first."""
    firsts = dict.fromkeys(
        row["retriever"] for row in table if row["retriever"].endswith("_top1") and _kind(row) == "baseline"
    )
    return sorted(firsts, key=lambda name: name != REFERENCE)


def _pairs(measured: Collection[str], ranked: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs whose retrievers were measured, the better-supposed one first."""
    for model, others in BESIDE.items():
        yield from ((model, other) for other in (*ranked, *others) if model in measured and other in measured)
    yield from (
        (other, REFERENCE) for other in ranked if other in measured and REFERENCE in measured and other != REFERENCE
    )


def _kind(row: Mapping[str, Any]) -> Kind:
    kind: Kind = KINDS.get(row["retriever"]) or row.get("kind") or "baseline"
    return kind


def cautions(rows: Sequence[EvaluationRow], pairs: Sequence[Pair]) -> list[str]:
    """Sentences on what cannot be shown with so few held-out repositories; none with enough of them."""
    repositories = max(row.repositories or 1 for row in rows)
    families = Counter(pair.on for pair in pairs)
    said = few_repositories(repositories, families[WHOLE])
    mined = next((pair.repositories for pair in pairs if pair.on == MINED), repositories)
    if mined != repositories:
        said += [f"Against mined targets: {sentence}" for sentence in few_repositories(mined, families[MINED])]
    return said


def _score(row: Mapping[str, Any]) -> IssueScore:
    return IssueScore(**{name: row[name] for name in IssueScore.__dataclass_fields__})


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    values = [float(row[column]) for row in rows if row.get(column) is not None]
    return fmean(values) if values else None


def _quantile(rows: Sequence[Mapping[str, Any]], column: str, share: float) -> float | None:
    values = [float(row[column]) for row in rows if row.get(column) is not None]
    return float(np.quantile(values, share)) if values else None


def _count(rows: Sequence[Mapping[str, Any]], column: str) -> int | None:
    return sum(row.get(column) is not None for row in rows) or None


def _interval(rows: Sequence[Mapping[str, Any]], column: str, resamples: int) -> Interval:
    values, repositories = [row[column] for row in rows], [str(row["repo"]) for row in rows]
    return bootstrap_mean(values, resamples=resamples, clusters=repositories)
