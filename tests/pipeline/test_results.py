"""From rows to tables: means, equal length, pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from codegrep.metrics.bootstrap import bootstrap_mean, permutation_test
from codegrep.pipeline.results import FIRST_FILE, MINED, WHOLE, cautions, comparisons, evaluation_rows


def row(
    retriever: str, issue: str, f05: float, top1: float, turns: int | None = None, repo: str = "o/r"
) -> dict[str, Any]:
    return {
        "retriever": retriever,
        "instance_id": issue,
        "repo": repo,
        "f05": f05,
        "f1": f05,
        "precision": f05,
        "recall": f05,
        "hit": float(f05 > 0),
        "good": float(f05 >= 0.8),
        "files": 1,
        "f05_top1": top1,
        "turns": turns,
        "calls": None,
        "generated_tokens": None,
        "seconds_per_issue": 1.0,
    }


def table() -> list[dict[str, Any]]:
    issues = [f"i{n}" for n in range(20)]
    rows = [row("trained", i, 1.0, 1.0, 3) for i in issues]
    rows += [row("warm_start", i, 0.5 if n % 2 else 1.0, 1.0, 2) for n, i in enumerate(issues)]
    rows += [row("first_row", i, 0.0, 0.0) for i in issues]
    return rows


def test_one_line_a_retriever_with_its_mean_and_interval() -> None:
    lines = {line.retriever: line for line in evaluation_rows(table(), resamples=200)}
    assert lines["warm_start"].f05_mean == pytest.approx(0.75)
    assert lines["warm_start"].f05_low < 0.75 < lines["warm_start"].f05_high
    assert lines["trained"].turns == 3
    assert lines["first_row"].turns is None
    assert lines["first_row"].kind == "scripted"


def test_pairs_at_full_and_at_equal_length() -> None:
    pairs = {(p.a, p.b, p.on): p for p in comparisons(table(), resamples=200)}
    whole = pairs["trained", "warm_start", WHOLE].comparison
    assert whole.difference.estimate == pytest.approx(0.25)
    assert (whole.better, whole.equal, whole.worse) == (10, 10, 0)
    assert pairs["trained", "warm_start", FIRST_FILE].comparison.difference.estimate == 0
    assert ("trained", "bm25_top1", WHOLE) not in pairs


def test_retrievers_on_different_issues_are_not_compared() -> None:
    rows = [r for r in table() if not (r["retriever"] == "first_row" and r["instance_id"] == "i0")]
    assert ("trained", "first_row", WHOLE) not in {(p.a, p.b, p.on) for p in comparisons(rows, 50)}


def drawn(draw: np.random.Generator, repositories: int, issues: int) -> tuple[list[dict[str, Any]], list[float]]:
    """Two equally good retrievers on issues of drawn repositories; a fifth of the variance of their difference is
    between repositories. Also the differences."""
    rows, differences = [], []
    for number in range(repositories):
        effect = draw.normal(0.0, np.sqrt(0.2))
        for issue in range(issues):
            differences.append(float(effect + draw.normal(0.0, np.sqrt(0.8))))
            where = (f"{number}-{issue}", differences[-1])
            rows.append(row("trained", where[0], where[1], where[1], repo=f"o/r{number}"))
            rows.append(row("warm_start", where[0], 0.0, 0.0, repo=f"o/r{number}"))
    return rows, differences


def test_the_intervals_of_a_report_cover_and_its_tests_hold_their_level() -> None:
    """With 12 repositories of 14 issues; resampling issues alone would not."""
    draw = np.random.default_rng(8)
    covered = errors = covered_by_issue = errors_by_issue = 0
    times = 200
    for _ in range(times):
        rows, differences = drawn(draw, 12, 14)
        line = evaluation_rows(rows, resamples=200)[0]
        covered += line.f05_low <= 0.0 <= line.f05_high
        (pair,) = [p for p in comparisons(rows, resamples=200) if p.on == WHOLE]
        errors += pair.comparison.p_value <= 0.05
        by_issue = bootstrap_mean(differences, resamples=200)
        covered_by_issue += by_issue.low <= 0.0 <= by_issue.high
        errors_by_issue += permutation_test(differences, resamples=200) <= 0.05
    assert covered / times >= 0.89 and errors / times <= 0.09
    assert covered_by_issue / times < 0.75 and errors_by_issue / times > 0.2


@pytest.mark.parametrize(
    ("repositories", "said"),
    [
        (1, ["All issues are of one repository"]),
        (5, ["5 repositories are few", "no p-value can get below 0.062: no difference can be shown"]),
        (7, ["7 repositories are few"]),  # 2^-6 = .016 for one comparison
        (8, []),
    ],
)
def test_what_few_repositories_cannot_show_is_said(repositories: int, said: list[str]) -> None:
    rows, _ = drawn(np.random.default_rng(1), repositories, 4)
    lines = evaluation_rows(rows, resamples=50)
    found = cautions(lines, comparisons(rows, resamples=50))
    assert len(found) == len(said) and all(part in sentence for part, sentence in zip(said, found, strict=True))
    assert lines[0].repositories == repositories and lines[0].metrics()["eval/trained/repositories"] == repositories


def test_holms_correction_raises_the_floor() -> None:
    rows, _ = drawn(np.random.default_rng(1), 7, 4)
    rows += [
        {**one, "retriever": name} for name in ("bm25_top1", "first_row", "base") for one in rows if one["f05"] == 0
    ]
    pairs = comparisons(rows, resamples=50)
    assert sum(pair.on == WHOLE for pair in pairs) == 6  # 6 / 64 = .094
    assert "below 0.016, after Holm's correction of 6 comparisons below 0.094" in " ".join(
        cautions(evaluation_rows(rows, resamples=50), pairs)
    )


def test_one_repository_is_tested_by_its_issues() -> None:
    """Its issues are then all there is; flipping the sign of the one repository could never show anything."""
    (pair,) = [p for p in comparisons(table(), 200) if (p.a, p.b, p.on) == ("trained", "first_row", WHOLE)]
    assert pair.comparison.p_value < 0.01


def test_mined_targets_and_latency_are_means_over_the_issues_that_have_them() -> None:
    rows = [{**one, "f05_mined": 0.5, "latency_seconds": 2.0, "line_f05": 0.25} for one in table()]
    for number, one in enumerate(rows):
        if number % 20 >= 5:
            one["f05_mined"] = one["latency_seconds"] = None
        if one["retriever"] == "first_row":
            one["line_f05"] = None
    lines = {line.retriever: line for line in evaluation_rows(rows, resamples=100)}
    trained, first_row = lines["trained"], lines["first_row"]
    assert (trained.f05_mined, trained.f05_mined_low, trained.mined_issues) == (0.5, 0.5, 5)
    assert (trained.latency_seconds, trained.latency_issues, trained.seconds_per_issue) == (2.0, 5, 1.0)
    assert (trained.line_f05, trained.line_issues, first_row.line_f05) == (0.25, 20, None)
    assert trained.metrics()["eval/trained/f05_mined"] == 0.5 and "eval/first_row/line_f05" not in first_row.metrics()
    mined = [p for p in comparisons(rows, resamples=100) if p.on == MINED]
    assert mined and all(p.comparison.issues == 5 for p in mined)
    assert not [p for p in comparisons(table(), resamples=100) if p.on == MINED]
