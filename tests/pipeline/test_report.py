"""The report: its table in a narrow terminal, and a run whose MLflow store is away."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from codegrep.metrics.bootstrap import Comparison, Interval
from codegrep.pipeline import report
from codegrep.pipeline.context import Context
from codegrep.pipeline.results import Pair
from codegrep.tracking import curves
from codegrep.tracking.run import TrackingHandle


def test_curves_that_cannot_be_read_end_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said: list[str] = []
    handle = TrackingHandle("http://me:secret@127.0.0.1:9", "0" * 32)  # the discard port: refused at once
    context = cast(Context, SimpleNamespace(tracker=SimpleNamespace(handle=handle), say=said.append))
    assert report._curves(context) == []
    assert len(said) == 1 and "cannot be read" in said[0] and "secret" not in said[0] and "\n" not in said[0]


def _pair(a: str, b: str, equal_length: bool = False) -> Pair:
    return Pair(a, b, equal_length, Comparison(2, Interval(-0.5, -1.0, 0.0, 0.95, "made up"), 1.0, 0, 1, 1), 1.0)


@pytest.mark.parametrize(("width", "whole"), [(80, False), (100, True)])
def test_numbers_are_never_cut_in_a_narrow_terminal(width: int, whole: bool) -> None:
    names = ("trained", "bm25_no_tests_top1")
    console = Console(width=width, file=io.StringIO())
    console.print(report._pairs_table([_pair(*names), _pair(*names, equal_length=True)], width))
    text = cast(io.StringIO, console.file).getvalue()
    assert ("at equal length [95%]" in text.splitlines()[1]) == whole
    assert "…" not in text
    assert text.count("-0.500 [-1.000, +0.000]") == (2 if whole else 1)
    assert "trained − bm25_no_tests_top1" in text and " 1.000 " in text and "0/1/1" in text


def test_every_panel_of_the_training_figure_is_read() -> None:
    wanted = [name for panel in curves._PANELS for name in panel.metrics]
    assert [name for name in wanted if not name.startswith(report.CURVES)] == []
