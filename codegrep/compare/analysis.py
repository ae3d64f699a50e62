"""Retrieval table and comparisons: from the rows of all runs to means, intervals and p-values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np
from numpy.typing import NDArray

from codegrep.compare.designs import ComparedDesign
from codegrep.compare.measures import MEASURES, PRIMARY
from codegrep.compare.runs import IssueRow, RunRecord
from codegrep.errors import DataError
from codegrep.metrics.bootstrap import RESAMPLES, Interval, holm
from codegrep.metrics.runs import DesignComparison, Scores, compare_designs, mean_interval

SUBJECTS = ("trained", "warm_start")  # whose results are the design's: the first of them that was measured
# Each design is set against these and the first file of every other ranking.
REFERENCES = ("warm_start", "first_row", "bm25_no_tests_top1", "bm25_top1", "base")
STARTS = ("warm_start", "base")  # those of them that training begins with


@dataclass(frozen=True)
class Retriever:
    """One line of the retrieval table.

    Attributes:
        label: of the design, or the retriever's own name.
        design: whether it is one of the compared designs.
        oracle: has seen the gold files: a ceiling, never a rival.
        scores: measure's column -> scores on the measure's issues; one that some of them lacks is left out.
        interval: of the mean F0.5, over runs (of a design), repositories and issues.
        f05_median: over issues, of the mean over runs.
    """

    label: str
    design: bool
    scores: Mapping[str, Scores]
    interval: Interval
    f05_median: float
    oracle: bool = False

    @property
    def runs(self) -> int:
        """Training runs; 1 for what is not trained."""
        return self.scores[PRIMARY.column].runs

    @property
    def fixed(self) -> bool:
        """Not trained here, so it has no seeds."""
        return self.scores[PRIMARY.column].fixed

    def mean(self, column: str) -> float | None:
        """Over runs and issues; None where the measure does not apply."""
        return float(self.scores[column].by_issue.mean()) if column in self.scores else None


@dataclass(frozen=True)
class Contrast:
    """a against b on one measure.

    Attributes:
        p_holm: of the claim, corrected over all contrasts of its family on this measure; None where one of the two
            designs has a single run.
    """

    a: str
    b: str
    column: str
    result: DesignComparison
    p_holm: float | None


@dataclass(frozen=True)
class Analysis:
    """Everything that the page says about held-out issues.

    Attributes:
        subject: the retriever of each run that stands for its design.
        issues: ids that every run and retriever of the table has a result for.
        repositories: (issues,) of each.
        retrievers: designs first, then the others.
        between: every pair of designs, every measure that claims are made on.
        against: every design against the references, on the primary measure.
        dropped: issues that some run lacks.
    """

    subject: str
    issues: tuple[str, ...]
    repositories: tuple[str, ...]
    retrievers: tuple[Retriever, ...]
    between: tuple[Contrast, ...]
    against: tuple[Contrast, ...]
    dropped: int

    @property
    def designs(self) -> tuple[Retriever, ...]:
        """The lines that are designs."""
        return tuple(retriever for retriever in self.retrievers if retriever.design)

    def contrast(self, a: str, b: str, column: str) -> Contrast | None:
        """Return the one between two designs on one measure."""
        return next((c for c in self.between if (c.a, c.b, c.column) == (a, b, column)), None)

    @property
    def primary(self) -> tuple[Contrast, ...]:
        """Between designs, on the primary measure."""
        return tuple(contrast for contrast in self.between if contrast.column == PRIMARY.column)


def analyse(designs: Sequence[ComparedDesign], *, resamples: int = RESAMPLES, seed: int = 0) -> Analysis:
    """Measure every design and what was measured beside it, on the issues that all have in common.

    Raises:
        DataError: no run has results of a model, or the runs share no issue.
    """
    runs = [run for design in designs for run in design.runs]
    tables = {run.run_id: _table(run) for run in runs}
    subject = next((name for name in SUBJECTS if all(name in table for table in tables.values())), None)
    if subject is None:
        raise DataError(
            f"not every run has held-out results of {' or of '.join(SUBJECTS)}", "See evaluate.models and --list"
        )
    everywhere = [set(table[subject]) for table in tables.values()]
    issues = sorted(set.intersection(*everywhere))
    dropped = len(set.union(*everywhere)) - len(issues)
    if not issues:
        raise DataError("the runs were measured on different issues", "Compare runs with the same data")
    repositories = tuple(tables[runs[0].run_id][subject][issue].repo for issue in issues)
    places = _places([[tables[run.run_id][subject][issue] for issue in issues] for run in runs])
    retrievers = []
    for design in designs:
        rows = [[tables[run.run_id][subject][issue] for issue in issues] for run in design.runs]
        retrievers.append(_retriever(design.label, True, rows, False, repositories, places, resamples, seed))
    for name in _others(tables, subject, issues):
        rows = _distinct([[table[name][issue] for issue in issues] for table in tables.values() if name in table])
        retrievers.append(_retriever(name, False, rows, len(rows) == 1, repositories, places, resamples, seed))
    return Analysis(
        subject=subject,
        issues=tuple(issues),
        repositories=repositories,
        retrievers=tuple(retrievers),
        between=tuple(_between(retrievers, repositories, places, resamples, seed)),
        against=tuple(_against(retrievers, repositories, resamples, seed)),
        dropped=dropped,
    )


def _places(runs: Sequence[Sequence[IssueRow]]) -> dict[str, list[int]]:
    """Return the issues of each measure, by their number: all, or for a partial one those that every run has it on."""
    everywhere = list(range(len(runs[0])))
    places = {}
    for measure in MEASURES:
        has = [n for n in everywhere if all(run[n].values.get(measure.column) is not None for run in runs)]
        places[measure.column] = has if measure.partial else everywhere
    return {column: numbers for column, numbers in places.items() if numbers}


def _table(run: RunRecord) -> dict[str, dict[str, IssueRow]]:
    table: dict[str, dict[str, IssueRow]] = {}
    for row in run.rows:
        table.setdefault(row.retriever, {})[row.instance_id] = row
    return table


def _others(
    tables: Mapping[str, Mapping[str, Mapping[str, IssueRow]]], subject: str, issues: Sequence[str]
) -> list[str]:
    """Return the other retrievers that cover all issues wherever they were measured, in the tables' order."""
    names = dict.fromkeys(name for table in tables.values() for name in table if name != subject)
    return [
        name for name in names if all(set(issues) <= table[name].keys() for table in tables.values() if name in table)
    ]


def _distinct(runs: list[list[IssueRow]]) -> list[list[IssueRow]]:
    """One row of each result: a baseline that all runs share counts once."""
    seen: dict[tuple[float | None, ...], list[IssueRow]] = {}
    for rows in runs:
        seen.setdefault(tuple(row.values.get(PRIMARY.column) for row in rows), rows)
    return list(seen.values())


def _retriever(
    label: str,
    design: bool,
    rows: Sequence[Sequence[IssueRow]],
    fixed: bool,
    repositories: Sequence[str],
    places: Mapping[str, Sequence[int]],
    resamples: int,
    seed: int,
) -> Retriever:
    scores = {}
    for column, numbers in places.items():
        values = [[run[number].values.get(column) for number in numbers] for run in rows]
        if all(value is not None for run in values for value in run):
            matrix: NDArray[np.float64] = np.array(values, dtype=np.float64)
            scores[column] = Scores(matrix, fixed)
    if PRIMARY.column not in scores:
        raise DataError(f"results of {label} have no {PRIMARY.column} for some issue", "Run the stage report again")
    primary = scores[PRIMARY.column]
    return Retriever(
        label=label,
        design=design,
        scores=scores,
        interval=mean_interval(primary, repositories, resamples=resamples, seed=seed),
        f05_median=median(primary.by_issue.tolist()),
        oracle=rows[0][0].kind == "oracle",
    )


def _between(
    retrievers: Sequence[Retriever],
    repositories: Sequence[str],
    places: Mapping[str, Sequence[int]],
    resamples: int,
    seed: int,
) -> list[Contrast]:
    designs = [retriever for retriever in retrievers if retriever.design]
    found: list[Contrast] = []
    for column in (measure.column for measure in MEASURES if measure.claims):
        pairs = [(a, b) for a, b in combinations(designs, 2) if column in a.scores and column in b.scores]
        own = [repositories[number] for number in places.get(column, ())]
        found += _family(pairs, column, own, resamples, seed)
    return found


def _against(retrievers: Sequence[Retriever], repositories: Sequence[str], resamples: int, seed: int) -> list[Contrast]:
    by_label = {retriever.label: retriever for retriever in retrievers if not retriever.design}
    further = [name for name, line in by_label.items() if name.endswith("_top1") and not line.oracle]
    references = [by_label[name] for name in dict.fromkeys((*REFERENCES, *further)) if name in by_label]
    pairs = [(design, other) for design in retrievers if design.design for other in references]
    return _family(pairs, PRIMARY.column, repositories, resamples, seed)


def _family(
    pairs: Sequence[tuple[Retriever, Retriever]],
    column: str,
    repositories: Sequence[str],
    resamples: int,
    seed: int,
) -> list[Contrast]:
    results = [
        compare_designs(a.scores[column], b.scores[column], repositories, resamples=resamples, seed=seed)
        for a, b in pairs
    ]
    claims = {str(number): result.p_claim for number, result in enumerate(results) if result.p_claim is not None}
    corrected = holm(claims)
    return [
        Contrast(a.label, b.label, column, result, corrected.get(str(number)))
        for number, ((a, b), result) in enumerate(zip(pairs, results, strict=True))
    ]
