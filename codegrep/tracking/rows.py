"""Rows of the tables that a run ends with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from codegrep.tracking.names import evaluation

Kind = Literal["model", "baseline", "scripted", "oracle"]


@dataclass(frozen=True)
class EvaluationRow:
    """One retriever on the held-out issues. None where a measure does not apply.

    Attributes:
        retriever: label for people, unique in its table.
        kind: "model"; "baseline" (BM25 and the like); "scripted", which uses neither model nor gold files; "oracle",
            which has seen the gold files and only shows the ceiling.
        issues: how many were measured.
        f05_mean, f05_low, f05_high: macro mean of file F0.5 and its 95% bootstrap interval over repositories and the
            issues within them.
        repositories: that the issues come from.
        f05_top1: F0.5 of the first file alone.
        f05_median, f1, precision, recall, hit: macro, in [0, 1].
        at: hit, recall and precision of the first k files of the ranking, by "<measure>_at_<k>"; a model's answer is
            its ranking.
        share_08: share of issues with F0.5 >= 0.8.
        files: mean length of the answer.
        turns, calls, tokens: means of an issue; tokens are generated ones.
        seconds_per_issue: wall time of the blocks that issues were answered in, by issues: throughput, no latency.
        query_seconds_p50, query_seconds_p95: quantiles of a ranking's time for one query, its index being there.
        index_seconds, index_bytes: wall time of building a tree's index, and its size in memory; means over issues.
        latency_seconds: mean over `latency_issues` issues that were answered alone, one at a time.
        f05_mined, f05_mined_low, f05_mined_high: file F0.5 against mined target sets, on the `mined_issues` that have
            one.
        line_f05: line-range F0.5 on the `line_issues` whose gold has lines.
        class_f1, function_f1: F1 of classes and functions on the issues whose gold has some.
    """

    retriever: str
    kind: Kind
    issues: int
    f05_mean: float
    f05_low: float | None = None
    f05_high: float | None = None
    f05_median: float | None = None
    precision: float | None = None
    recall: float | None = None
    share_08: float | None = None
    files: float | None = None
    turns: float | None = None
    calls: float | None = None
    tokens: float | None = None
    seconds_per_issue: float | None = None
    repositories: int | None = None
    latency_seconds: float | None = None
    latency_issues: int | None = None
    f05_mined: float | None = None
    f05_mined_low: float | None = None
    f05_mined_high: float | None = None
    mined_issues: int | None = None
    line_f05: float | None = None
    line_issues: int | None = None
    class_f1: float | None = None
    class_issues: int | None = None
    function_f1: float | None = None
    function_issues: int | None = None
    f05_top1: float | None = None
    f1: float | None = None
    hit: float | None = None
    query_seconds_p50: float | None = None
    query_seconds_p95: float | None = None
    index_seconds: float | None = None
    index_bytes: float | None = None
    at: Mapping[str, float] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        """Return the row as one level of values."""
        values = {name: value for name, value in asdict(self).items() if name != "at"}
        return {**self.at, **values}

    def metrics(self) -> dict[str, float]:
        """Return the row under the names of the catalogue: 'eval/<retriever>/<measure>'."""
        return {
            evaluation(self.retriever, measure): float(value)
            for measure, value in self.flat().items()
            if measure not in ("retriever", "kind") and value is not None
        }


@dataclass(frozen=True)
class FunnelRow:
    """One step that data went through.

    Attributes:
        step: what was done, for people ("read", "has gold files at its base commit").
        kept: how many are left after it.
        dropped: how many fell out, by reason.
    """

    step: str
    kept: int
    dropped: Mapping[str, int]


@dataclass(frozen=True)
class PairedScore:
    """F0.5 of two retrievers on one issue; `before` is the one that is compared with."""

    instance_id: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        """After - before, in [-1, 1]."""
        return self.after - self.before
