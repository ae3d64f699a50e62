"""The page that ranks what was measured."""

from __future__ import annotations

from codegrep.pipeline.leaderboard import leaderboard, ranked
from codegrep.pipeline.results import comparisons, evaluation_rows
from codegrep.tracking import pages
from codegrep.tracking.rows import EvaluationRow
from tests.pipeline.test_results import row


def lines() -> tuple[list[dict[str, object]], list[EvaluationRow]]:
    found = {"bm25_no_tests_top1": 0.25, "mine_top1": 0.75, "all_oracle_top10": 1.0}
    table = [
        {
            **row(name, f"i{number}", f05, f05, repo=f"o/r{number}"),
            "kind": "oracle" if "oracle" in name else "baseline",
            "query_seconds": 0.002,
            "index_bytes": 2**20,
            "hit_at_5": 1.0,
        }
        for name, f05 in found.items()
        for number in range(4)
    ]
    return table, evaluation_rows(table, 50)


def test_the_best_is_first_and_what_has_seen_gold_is_last() -> None:
    table, rows = lines()
    assert [line.retriever for line in ranked(rows)] == ["mine_top1", "bm25_no_tests_top1", "all_oracle_top10"]
    assert [line.kind for line in rows] == ["baseline", "baseline", "oracle"]
    page = leaderboard(rows, comparisons(table, 50), "Leaderboard of x", "4 issues")
    text = pages.markdown(page)
    assert "| mine_top1 | 0.750 [0.750, 0.750] | 0.750 |" in text and "+0.500 [+0.500, +0.500]" in text
    assert "hit@5" in text and "hit@10" not in text  # which no row has
    assert "| mine_top1 | 2.0 | 2.0 | 1.0 |" in text and "all_oracle_top10 \\* | 1.000" in text
    assert text.count("all_oracle_top10") == 2  # a ceiling has no cost


def test_every_ranking_is_compared_with_bm25_but_a_bound_with_nothing() -> None:
    table, _ = lines()
    assert {(pair.a, pair.b) for pair in comparisons(table, 50)} == {("mine_top1", "bm25_no_tests_top1")}
