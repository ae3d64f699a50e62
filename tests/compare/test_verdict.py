"""What the page says, for results whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from codegrep.compare.analysis import Analysis, analyse
from codegrep.compare.contents import Comparison, page_of
from codegrep.compare.designs import group
from codegrep.compare.figures import curves_figure, difference_figure, held_out_figure
from codegrep.compare.runs import RunRecord
from codegrep.compare.verdict import Claim, verdict
from codegrep.errors import DataError
from codegrep.tracking.pages import html, markdown
from tests.compare.made_runs import record


def analysis(designs: Mapping[str, float], seeds: Sequence[int]) -> Analysis:
    records = [record(name, seed, quality) for name, quality in designs.items() for seed in seeds]
    return analyse(group(records)[0], resamples=500)


def comparison(designs: Mapping[str, float], seeds: Sequence[int]) -> Comparison:
    records = [record(name, seed, quality) for name, quality in designs.items() for seed in seeds]
    made, left_out = group(records)
    found = analyse(made, resamples=500)
    return Comparison("test", tuple(made), found, verdict(found), tuple(left_out), 0.02, 500)


def test_a_large_difference_over_seeds_is_claimed():
    found = verdict(analysis({"v1": 0.1, "v3": 0.8}, (0, 1, 2)))
    (pair,) = found.pairs
    assert pair.claim is Claim.WORSE and pair.settle == ""
    assert "v3 is better than v1: F0.5 +0." in pair.what
    assert found.headline == "v3 finds files better than v1."
    assert any(line.startswith("precision: v3 is better than v1") for line in pair.also)


def test_one_seed_supports_no_claim_however_large_the_difference():
    found = verdict(analysis({"v1": 0.0, "v3": 1.0}, (0,)))
    (pair,) = found.pairs
    assert pair.claim is Claim.ONE_RUN and "No claim about v1 and v3 as designs" in pair.what
    assert found.headline.startswith("No claim:") and pair.also == ()
    assert "at least three seeds" in pair.settle


def test_a_small_difference_is_open_and_the_page_says_what_would_settle_it():
    found = verdict(analysis({"v1": 0.45, "v3": 0.5}, (0, 1, 2)))
    (pair,) = found.pairs
    assert pair.claim is Claim.OPEN and found.headline.startswith("Not settled")
    assert "four times in five" in pair.settle
    assert any(words in pair.settle for words in ("seeds a design", "repositories like these", "times as many"))


def test_equal_results_are_alike():
    found = verdict(analysis({"v1": 1.0, "v3": 1.0}, (0, 1, 2)))
    assert found.pairs[0].claim is Claim.ALIKE and "are alike" in found.headline


def with_start(made: RunRecord, start: str) -> RunRecord:
    """The run, and rows of the model it started from with the same scores."""
    rows = [replace(row, retriever=start) for row in made.rows if row.retriever == "trained"]
    return replace(made, rows=[*made.rows, *rows])


@pytest.mark.parametrize("start", ["warm_start", "base"])
def test_policies_that_have_not_moved_are_not_called_alike(start: str):
    records = [with_start(record(name, seed, 1.0), start) for name in ("v1", "v3") for seed in (0, 1, 2)]
    found = verdict(analyse(group(records)[0], resamples=200))
    (pair,) = found.pairs
    assert pair.claim is Claim.UNMOVED and "hardly been trained" in pair.what and "learning rate" in pair.settle
    assert found.headline.startswith("No verdict: v1 and v3 score what the model they started from scores")


def test_a_design_alone_is_still_set_against_the_baselines():
    found = verdict(analysis({"v3": 0.9}, (0, 1, 2)))
    assert found.headline.startswith("One design, v3: F0.5 0.") and found.pairs == ()
    (line,) = found.against
    assert line.startswith("v3 − bm25_no_tests_top1: +0.") and line.endswith(": better")
    one = verdict(analysis({"v3": 0.9}, (0,)))
    assert "one run, so this is about that adapter alone" in one.against[0]


def test_a_ranking_that_nobody_foresaw_is_a_reference_and_a_bound_is_none():
    further = {"named_top1": "baseline", "named_top5": "baseline", "named_oracle_top1": "oracle"}
    records = []
    for made in (record("v3", seed, 0.9) for seed in (0, 1, 2)):
        known = [row for row in made.rows if row.retriever == "bm25_no_tests_top1"]
        more = [replace(row, retriever=name, kind=kind) for name, kind in further.items() for row in known]
        records.append(replace(made, rows=[*made.rows, *more]))
    found = analyse(group(records)[0], resamples=200)
    assert [contrast.b for contrast in found.against] == ["bm25_no_tests_top1", "named_top1"]
    assert [line.label for line in found.retrievers if line.oracle] == ["named_oracle_top1"]


def test_three_designs_are_corrected_together():
    found = analysis({"v1": 0.1, "v2": 0.1, "v3": 0.9}, (0, 1, 2))
    assert len(found.primary) == 3
    for contrast in found.primary:
        assert contrast.p_holm >= contrast.result.p_claim - 1e-12
    assert verdict(found).headline == "v3 finds files better than v1 and v2."


def test_issues_that_a_run_lacks_are_left_out_for_all():
    whole, short = record("v1", 0, 0.5), record("v3", 0, 0.5)
    short.rows.pop(0)  # type: ignore[attr-defined]
    found = analyse(group([whole, short])[0], resamples=200)
    assert found.dropped == 1 and len(found.issues) == 41


def test_advice_follows_the_groups_that_had_no_spread():
    records = [with_start(record(name, seed, 1.0), "base") for name in ("v1", "v3") for seed in (0, 1, 2)]
    found = analyse(group(records)[0], resamples=200)
    assert "larger learning rate, until KL" in verdict(found).pairs[0].settle
    dead = verdict(found, dead_groups={"v1": 1.0, "v3": 0.95}).pairs[0].settle
    assert "In 95 % of the groups" in dead and "do not help" in dead


def test_what_is_the_same_for_all_pairs_is_said_once():
    text = markdown(page_of(comparison({"v1": 0.2, "v2": 0.5, "v3": 0.8}, (0,))))
    assert text.count("Train both designs") == 1 and "What would settle the pairs: Train both designs" in text


def test_curves_that_coincide_are_drawn_once_and_panels_that_never_move_are_a_line():
    made = comparison({"v1": 0.4, "v3": 0.5}, (0,))
    one, other = made.designs
    same = replace(other, runs=tuple(replace(run, curves=one.runs[0].curves) for run in other.runs))
    panels = {axes.get_title(loc="left"): axes for axes in curves_figure([one, same]).axes}
    assert len([line for line in panels["KL to the reference"].lines if len(line.get_xdata())]) == 1
    assert [text.get_text() for text in panels["KL to the reference"].texts] == ["v3 = v1"]
    flat = [{**row, "completions/clipped_ratio": 0.0} for row in one.runs[0].curves]
    figure = curves_figure([replace(one, runs=tuple(replace(run, curves=flat) for run in one.runs))])
    assert "Completions cut by the budget" not in {axes.get_title(loc="left") for axes in figure.axes}
    assert "the same at every step: Completions cut by the budget 0 %" in figure.get_supxlabel()


def test_runs_without_a_common_issue_cannot_be_compared():
    one, other = record("v1", 0, 0.5), record("v3", 0, 0.5)
    moved = [type(row)(row.retriever, f"x-{row.instance_id}", row.repo, row.values) for row in other.rows]
    with pytest.raises(DataError, match="different issues"):
        analyse(group([one, type(other)(**{**other.__dict__, "rows": moved})])[0])


def test_differently_defined_rewards_never_share_an_axis():
    made = comparison({"v1": 0.4, "v3": 0.5}, (0, 1))
    titles = {axes.get_title(loc="left"): axes for axes in curves_figure(made.designs).axes}
    assert {"Reward as v1 defines it", "Reward as v3 defines it", "F0.5 of training rollouts"} <= titles.keys()
    lines = {title: [line for line in axes.lines if len(line.get_xdata())] for title, axes in titles.items()}
    assert len(lines["Reward as v3 defines it"]) == 1 and len(lines["F0.5 of training rollouts"]) == 2
    assert len(titles["KL to the reference"].collections) == 2  # a band each
    same, _ = group([record("v3", seed, 0.5, **{"train.grpo.kl": kl}) for seed in (0, 1) for kl in ("0", "1")])
    panels = {axes.get_title(loc="left"): axes for axes in curves_figure(same).axes}
    assert len([line for line in panels["Reward"].lines if len(line.get_xdata())]) == 1  # made of the same numbers
    assert " = " in panels["Reward"].texts[0].get_text()


def test_every_panel_has_its_unit_and_one_seed_has_no_band():
    figure = curves_figure(comparison({"v1": 0.4, "v3": 0.5}, (0,)).designs)
    assert all(axes.get_ylabel() for axes in figure.axes)
    assert not any(axes.collections for axes in figure.axes)


def test_the_other_figures():
    made = comparison({"v1": 0.4, "v3": 0.5}, (0, 1))
    labels = [text.get_text() for text in held_out_figure(made.analysis).axes[0].get_yticklabels()]
    assert {"v1 (2 runs)", "v3 (2 runs)", "bm25_no_tests_top1"} == set(labels)
    assert difference_figure(made.analysis).axes[0].get_yticklabels()[0].get_text() == "v1 − v3"
    assert difference_figure(comparison({"v1": 0.4}, (0, 1)).analysis) is None


def test_the_page_in_both_forms():
    page = page_of(comparison({"v1": 0.1, "<b>&|v3": 0.9}, (0, 1, 2)))
    text, site = markdown(page), html(page)
    assert "## Verdict" in text and "![Training curves" in text and "\\<b>&\\|v3" in text
    assert "<b>&|v3" not in site and "&lt;b&gt;&amp;|v3" in site
    assert "default-src 'none'" in site and "<script" not in site
    assert 'src="http' not in site and site.count("data:image/svg+xml;base64,") == len(page.pictures) == 3
    for heading in ("Held-out retrieval", "Cost of one training", "Guard rails", "How this was computed"):
        assert heading in text and heading in site
    assert html(page_of(comparison({"v1": 0.1, "<b>&|v3": 0.9}, (0, 1, 2)))) == site  # the same bytes again


def timed(design: str, seed: int, seconds: float, issues: int) -> RunRecord:
    """A run whose first `issues` issues of each retriever have a latency, and all a throughput."""
    made = record(design, seed, 0.5)
    numbers: dict[str, int] = {}
    rows = []
    for row in made.rows:
        number = numbers[row.retriever] = numbers.get(row.retriever, -1) + 1
        latency = seconds + 0.01 * (number % 3) if number % 6 == 0 and number // 6 < issues else None
        rows.append(replace(row, values={**row.values, "seconds_per_issue": 9 * seconds, "latency_seconds": latency}))
    return replace(made, rows=rows)


def test_latency_is_compared_on_the_issues_of_its_sample_and_throughput_not_at_all():
    runs = [timed(name, seed, s + 0.001 * seed, 7) for name, s in (("v1", 1.0), ("v3", 3.0)) for seed in (0, 1, 2)]
    designs, left_out = group(runs)
    found = analyse(designs, resamples=500)
    contrast = found.contrast("v1", "v3", "latency_seconds")
    assert contrast is not None and contrast.result.worse + contrast.result.better == 7
    assert contrast.result.difference.estimate == pytest.approx(-2.0)
    assert contrast.p_holm == pytest.approx(2 / 2**7)  # seven repositories, one issue each
    assert found.contrast("v1", "v3", "seconds_per_issue") is None
    said = verdict(found)
    assert [line for line in said.pairs[0].also if "seconds" in line] == [
        "seconds alone, latency: v3 is costlier than v1 by 2.00 on 7 issues"
    ]
    text = markdown(page_of(Comparison("test", tuple(designs), found, said, tuple(left_out), 0.02, 500)))
    assert "seconds an issue, throughput |" in text and "seconds alone, latency (7 issues)" in text


def test_a_sample_that_runs_do_not_share_is_not_compared():
    runs = [timed("v1", 0, 1.0, 7), timed("v3", 0, 1.0, 0)]
    assert analyse(group(runs)[0], resamples=100).contrast("v1", "v3", "latency_seconds") is None
