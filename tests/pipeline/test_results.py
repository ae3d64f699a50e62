"""From rows to tables: means, equal length, pairs."""

from __future__ import annotations

from typing import Any

import pytest

from codegrep.pipeline.results import comparisons, evaluation_rows


def row(retriever: str, issue: str, f05: float, top1: float, turns: int | None = None) -> dict[str, Any]:
    return {
        "retriever": retriever,
        "instance_id": issue,
        "repo": "o/r",
        "f05": f05,
        "precision": f05,
        "recall": f05,
        "hit": float(f05 > 0),
        "good": float(f05 >= 0.8),
        "files": 1,
        "f05_top1": top1,
        "turns": turns,
        "calls": None,
        "generated_tokens": None,
        "seconds": 1.0,
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
    pairs = {(p.a, p.b, p.equal_length): p for p in comparisons(table(), resamples=200)}
    whole = pairs["trained", "warm_start", False].comparison
    assert whole.difference.estimate == pytest.approx(0.25)
    assert (whole.better, whole.equal, whole.worse) == (10, 10, 0)
    assert pairs["trained", "warm_start", True].comparison.difference.estimate == 0
    assert ("trained", "bm25_top1", False) not in pairs


def test_retrievers_on_different_issues_are_not_compared() -> None:
    rows = [r for r in table() if not (r["retriever"] == "first_row" and r["instance_id"] == "i0")]
    assert ("trained", "first_row", False) not in {(p.a, p.b, p.equal_length) for p in comparisons(rows, 50)}
