"""The report: its table in a narrow terminal, and a run whose MLflow store is away."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from codegrep.metrics.bootstrap import Comparison, Interval
from codegrep.pipeline.results import FIRST_FILE, WHOLE, Pair
from codegrep.pipeline.run_summary import column_notes
from codegrep.pipeline.stages import report
from codegrep.runtime.progress import Progress
from codegrep.tracking import curves
from codegrep.tracking.rows import EvaluationRow
from codegrep.tracking.run import Tracker, TrackingHandle


def test_curves_that_cannot_be_read_end_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    out = io.StringIO()
    handle = TrackingHandle("http://me:secret@127.0.0.1:9", "0" * 32)  # the discard port: refused at once
    tracker = cast(Tracker, SimpleNamespace(handle=handle))
    assert report._curves(tracker, Progress(Console(file=out))) == []
    (line,) = out.getvalue().splitlines()
    assert "cannot be read" in line and "secret" not in line


def _pair(a: str, b: str, on: str = WHOLE) -> Pair:
    return Pair(a, b, on, 2, Comparison(2, Interval(-0.5, -1.0, 0.0, 0.95, "made up"), 1.0, 0, 1, 1), 1.0)


@pytest.mark.parametrize(("width", "whole"), [(80, False), (100, True)])
def test_numbers_are_never_cut_in_a_narrow_terminal(width: int, whole: bool) -> None:
    names = ("trained", "bm25_no_tests_top1")
    console = Console(width=width, file=io.StringIO())
    console.print(report._pairs_table([_pair(*names), _pair(*names, on=FIRST_FILE)], width))
    text = cast(io.StringIO, console.file).getvalue()
    assert ("at equal length [95%]" in text.splitlines()[1]) == whole
    assert "…" not in text
    assert text.count("-0.500 [-1.000, +0.000]") == (2 if whole else 1)
    assert "trained − bm25_no_tests_top1" in text and " 1.000 " in text and "0/1/1" in text


def test_every_panel_of_the_training_figure_is_read() -> None:
    wanted = [name for panel in curves._PANELS for name in panel.metrics]
    assert [name for name in wanted if not name.startswith(report.CURVES)] == []


def test_a_report_has_the_columns_that_there_is_something_in() -> None:
    plain = EvaluationRow("bm25_top1", "baseline", 40, 0.3, 0.2, 0.4, seconds_per_issue=0.1, repositories=9)
    assert (
        "mined" not in "".join(report._retrievers_table([plain]).header)
        and "f05_mined" not in report._filled([plain])[0]
    )
    places = {"f05_mined": 0.4, "f05_mined_low": 0.3, "f05_mined_high": 0.5, "mined_issues": 30, "line_f05": 0.2}
    rich = EvaluationRow("trained", "model", 40, 0.5, 0.4, 0.6, latency_seconds=1.5, latency_issues=8, **places)  # type: ignore[arg-type]
    table = report._retrievers_table([plain, rich])
    assert table.header[-4:] == ("s/issue", "s alone", "mined [95 %]", "lines")
    assert table.rows[1][-4:] == ("–", "1.50", "0.400 [0.300, 0.500]", "0.200")
    assert table.rows[0][-4:] == ("0.10", "–", "–", "–")
    assert [row["f05_mined"] for row in report._filled([plain, rich])] == [None, 0.4]
    notes = column_notes([plain, rich])
    assert any("throughput" in note for note in notes) and any("30 issues" in note for note in notes)
    assert any(note.startswith("s alone: ") and "8 issues" in note for note in notes)


def test_a_pair_that_is_the_same_at_equal_length_has_one_row() -> None:
    same = [_pair("trained", "first_row"), _pair("trained", "first_row", on=FIRST_FILE)]
    other = Pair("trained", "first_row", FIRST_FILE, 2, replace(same[0].comparison, worse=2, equal=0), 1.0)
    assert [row[1] for row in report._differences_table(same).rows] == ["whole list, first file"]
    assert [row[1] for row in report._differences_table([same[0], other]).rows] == ["whole list", "first file"]
