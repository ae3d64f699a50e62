"""Figures, tables and the card: what they show, drawn for real."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import pytest
from rich.console import Console

from codegrep.tracking import names
from codegrep.tracking.figures import gain_by_issue, retriever_bars, training_curves
from codegrep.tracking.model_card import ModelCard, markdown
from codegrep.tracking.rows import EvaluationRow, FunnelRow, PairedScore
from codegrep.tracking.terminal import evaluation_table, funnel_table

ROWS = [
    EvaluationRow("base", "model", 56, 0.021, 0.0, 0.06, 0.0, 0.02, 0.02, 0.0, 1.2, 3.9, 2.1, 300, 9.1),
    EvaluationRow("trained", "model", 56, 0.531, 0.41, 0.65, 0.56, 0.55, 0.47, 0.43, 1.1, 2.0, 6.2, 130, 4.0),
    EvaluationRow("BM25 top-1, no tests", "baseline", 56, 0.435, 0.31, 0.57, 0.5, 0.44, 0.41, 0.4, 1.0),
    EvaluationRow("first row", "scripted", 56, 0.503),
    EvaluationRow("oracle answer", "oracle", 56, 1.0, 1.0, 1.0),
]


def _history(seed, steps, missing=()):
    draw = random.Random(seed)
    wanted = [m.name for m in names.CATALOGUE if "<" not in m.name and m.name not in missing] + ["reward/file"]
    return [{"step": float(step), **{name: draw.random() for name in wanted}} for step in range(1, steps + 1)]


def _titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


def _png(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")


def test_curves_of_one_run_show_parts_and_units():
    figure = training_curves(_history(0, 30), title="v3")
    _png(figure)
    assert {"Reward", "KL to the reference", "Entropy", "Completion length", "Turns"} <= set(_titles(figure))
    reward = figure.axes[0]
    assert [text.get_text() for text in reward.get_legend().get_texts()] == ["total", "file"]
    assert all(axes.get_ylabel() for axes in figure.axes)


def test_a_panel_without_numbers_is_left_out():
    figure = training_curves(_history(0, 5, missing={"policy/kl"}))
    assert "KL to the reference" not in _titles(figure)


def test_designs_are_compared_by_one_line_each_and_seeds_are_thin():
    figure = training_curves({"v1": [_history(s, 60) for s in range(3)], "v3": [_history(s, 50) for s in (7, 8)]})
    _png(figure)
    widths = [line.get_linewidth() for line in figure.axes[0].lines if len(line.get_xdata())]
    assert sum(width < 1 for width in widths) == 5 and sum(width > 1 for width in widths) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["v1", "v3"]


def test_the_mean_over_seeds_ends_where_the_shortest_seed_ends():
    short = [{"step": 1.0, "policy/kl": 0.0}, {"step": 2.0, "policy/kl": 0.0}]
    long = [{"step": float(step), "policy/kl": 1.0} for step in range(1, 6)]
    mean = training_curves([short, long]).axes[0].lines[-1]
    assert list(mean.get_xdata()) == [1.0, 2.0] and list(mean.get_ydata()) == [0.5, 0.5]


@pytest.mark.parametrize("runs", [[], [[]], {}, {"v1": []}, {"v1": [[]]}, [{"step": 1.0}]])
def test_nothing_to_draw_is_said_in_the_figure(runs):
    figure = training_curves(runs)
    _png(figure)
    assert any("no training metrics" in text.get_text() for text in figure.texts)


def test_a_single_step_and_values_that_are_no_numbers():
    _png(training_curves([{"step": 1.0, "policy/kl": 0.5, "optim/grad_norm": float("nan"), "group/dead_rate": 0.0}]))


def test_retrievers_are_sorted_with_the_best_on_top():
    figure = retriever_bars(ROWS)
    _png(figure)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["base", "BM25 top-1, no tests", "first row", "trained", "oracle answer"]
    assert "n = 56" in figure.axes[0].get_title(loc="left")
    assert len(figure.legends[0].get_texts()) == 4
    _png(retriever_bars([EvaluationRow("x", "model", 3, 0.0), EvaluationRow("y", "model", 4, 0.0)]))


@pytest.mark.parametrize("count", [1, 30, 200])
def test_gains_are_counted(count):
    draw = random.Random(0)
    scores = [PairedScore(f"o__p-{i}", draw.choice([0, 0.5, 1]), draw.choice([0, 0.5, 1])) for i in range(count)]
    figure = gain_by_issue(scores, "BM25", "trained")
    _png(figure)
    better = sum(score.after > score.before for score in scores)
    worse = sum(score.after < score.before for score in scores)
    assert f"{better} better, {count - better - worse} equal, {worse} worse" in figure.axes[0].get_title(loc="left")


def test_figures_of_nothing_are_refused():
    with pytest.raises(ValueError):
        retriever_bars([])
    with pytest.raises(ValueError):
        gain_by_issue([], "a", "b")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_evaluation_table_fits_and_cuts_no_number(width):
    console = Console(width=width, file=io.StringIO())
    console.print(evaluation_table(ROWS, "Held-out issues", width))
    text = console.file.getvalue()
    assert "…" not in text and all(len(line) <= width for line in text.splitlines())
    for words in (".531 [.410, .650]", "1.000 [1.000, 1.000]", "oracle answer*", "56 held-out issues", ".435"):
        assert words in text
    assert ("median" in text.splitlines()[2]) == (width == 120)


def test_columns_that_nobody_fills_are_left_out_and_counts_shown_where_they_differ():
    console = Console(width=100, file=io.StringIO())
    console.print(evaluation_table([EvaluationRow("[red]x", "model", 3, 0.5), EvaluationRow("y", "model", 4, 0.25)]))
    header, *rows = [line.split() for line in console.file.getvalue().splitlines() if line.strip("─ ")]
    assert header == ["retriever", "F0.5", "[95%]", "n"]
    assert rows == [["[red]x", ".500", "3"], ["y", ".250", "4"]]


def test_the_funnel_names_every_reason():
    console = Console(width=100, file=io.StringIO())
    console.print(funnel_table([FunnelRow("read", 1200, {}), FunnelRow("usable", 1090, {"empty": 10, "merge": 100})]))
    assert "merge 100, empty 10" in console.file.getvalue() and "1,090" in console.file.getvalue()


def test_a_row_under_the_names_of_the_catalogue():
    logged = ROWS[2].metrics()
    assert logged["eval/bm25_top-1_no_tests/f05_mean"] == 0.435
    assert "eval/bm25_top-1_no_tests/turns" not in logged
    assert all(names.is_allowed(name) and names.describe(name) for name in logged)
    assert all("<metric>" not in names.describe(name).name for name in ROWS[0].metrics())


def test_the_card():
    card = ModelCard(
        name="v3-seed0",
        base_model="SmolLM2-135M-Instruct",
        design={"reward": "v3", "stages": "a|b\nc"},
        data={"demo": "abc"},
        evaluation=ROWS,
        command="python -m codegrep +experiment=v3 tracking.uri=https://me:pw@host",
        commit="deadbeef",
    )
    text = markdown(card)
    assert "| trained | 0.531 | 0.410 to 0.650 | 0.550 | 0.470 | 56 |" in text
    assert "a\\|b c" in text and "pw" not in text and "`deadbeef`" in text and "license" not in text
    assert "Not measured." in markdown(ModelCard("x", "y", {}, {}, [], "z"))


@pytest.mark.parametrize("width", [80, 100, 140])
def test_more_columns_leave_the_table_readable(width):
    rows = [
        replace(
            row, repositories=7, latency_seconds=1.5, latency_issues=8, f05_mined=0.4, mined_issues=30, line_f05=0.2
        )
        for row in ROWS
    ]
    console = Console(width=width, file=io.StringIO())
    console.print(evaluation_table(rows, width=width))
    text = console.file.getvalue()
    assert "…" not in text and ".531 [.410, .650]" in text and " .400" in text  # mined targets are the last to go
    shown = " ".join(text.split())
    assert "95%: resampling 7 repositories and their issues" in shown and "mined: 30 issues" in shown
