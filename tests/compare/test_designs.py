"""Which runs are one design, what a training cost, and what went wrong in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegrep.compare.cost import cost_of, cost_rows
from codegrep.compare.designs import group
from codegrep.compare.events import alarms, event_rows
from tests.compare.made_runs import STEPS, record


def test_runs_that_differ_by_seed_and_place_are_one_design():
    records = [record("v1", 1, 0.5), record("v1", 0, 0.5, outputs="/other", **{"cluster.name": "gpu"})]
    (design,), left_out = group(records)
    assert design.label == "v1" and design.seeds == ("0", "1") and not left_out
    assert design.settings == {}


def test_a_run_from_before_there_was_a_setting_has_its_default():
    later = {
        "answer_judge.judge": "null",
        "answer_judge.max_failed_share": "0.5",
        "train.checkpoint_selection.every": "0",
    }
    (design,), _ = group([record("v1", 0, 0.5), record("v1", 1, 0.5, **later)])
    assert design.seeds == ("0", "1")
    designs, _ = group(
        [record("v1", 0, 0.5), record("v1", 0, 0.5, **(later | {"train.checkpoint_selection.every": "25"}))]
    )
    assert [design.label for design in designs] == ["v1 (every=0)", "v1 (every=25)"]
    designs, _ = group([record("v1", 0, 0.5), record("v1", 0, 0.5, **{"reward.params.mine": "1"})])
    assert len(designs) == 2  # what an argument's default is, only its function knows


def test_designs_of_one_name_are_told_apart_by_what_differs():
    kl = "train.grpo.kl"
    designs, _ = group([record("v3", seed, 0.5, **{kl: value}) for seed in (0, 1) for value in ("0.02", "0.05")])
    assert [design.label for design in designs] == ["v3 (kl=0.02)", "v3 (kl=0.05)"]
    assert designs[0].reward == designs[1].reward


def test_a_seed_counts_once():
    old, new = record("v1", 0, 0.1), replace(record("v1", 0, 0.9), run_id="f" * 32)
    (design,), left_out = group([old, new])
    assert [run.run_id for run in design.runs] == ["f" * 32]
    assert [run.run_id for run in left_out] == [old.run_id] and "run again later" in left_out[0].reason


def test_rewards_are_the_same_only_by_function_and_parameters():
    designs, _ = group([record("v1", 0, 0.5), record("v3", 0, 0.5), record("mine", 0, 0.5)])
    by_label = {design.label: design.reward for design in designs}
    assert by_label["v1"] != by_label["v3"] == by_label["mine"]


def test_the_cost_of_a_run_by_hand():
    cost = cost_of(record("v1", 0, 0.5))
    assert (cost.steps, cost.rollouts) == (STEPS, STEPS * 8)
    assert cost.seconds == pytest.approx(120.0) and cost.cpu_reserved == pytest.approx(240.0)
    assert cost.gpu_reserved == 0.0 and cost.cpu_used is None
    assert cost.tokens == 12_000 and cost.generated == STEPS * 2400
    assert cost_of(record("v1", 0, 0.5, **{"train.use_gpu": "true"})).gpu_reserved == pytest.approx(120.0)
    gap = replace(record("v1", 0, 0.5), curves=[{"step": 1.0, "optim/tokens": 9.0}])
    assert cost_of(gap).seconds is None and cost_of(gap).steps == 1  # never a sum with holes
    assert cost_of(gap).rollouts is None and cost_of(gap).generated is None
    labels = [row.label for row in cost_rows(group([record("v1", 0, 0.5)])[0])]
    assert "sampled tokens" in labels and "CPU time, used by the trainer" not in labels


def test_refilled_groups_and_further_updates_cost_too():
    """Groups of four: two batches of two groups, one of them with two more in the place of dropped ones; each batch is
    trained on twice.
    """
    first = {"optim/tokens": 1000.0, "seconds/step": 8.0, "group/drawn": 4.0, "completions/sampled": 900.0}
    third = {**first, "group/drawn": 2.0, "completions/sampled": 500.0}
    again = {"optim/tokens": 1000.0, "seconds/step": 2.0}
    curves = [{"step": float(n), **row} for n, row in enumerate((first, again, third, again), 1)]
    cost = cost_of(replace(record("v1", 0, 0.5), curves=curves))
    assert (cost.steps, cost.rollouts, cost.generated) == (4, 6 * 4, 1400)
    assert (cost.tokens, cost.seconds) == (4000, 20)


def test_events_add_up_and_shares_are_averaged():
    noisy = record("v1", 0, 0.5)
    noisy = replace(
        noisy, curves=[{**row, "errors/infrastructure": 2.0, "policy/logprob_gap": 0.3} for row in noisy.curves]
    )
    rows = {
        row.label.rpartition("(")[2].rstrip(")"): row for row in event_rows(group([noisy, record("v3", 0, 0.5)])[0])
    }
    assert rows["errors/infrastructure"].values == (2.0 * STEPS, 0.0)
    assert rows["errors/parse"].share and rows["errors/parse"].values[0] == pytest.approx(0.1)
    said = alarms(group([noisy])[0])
    assert any("old weights" in line for line in said) and any("24 rollouts were lost" in line for line in said)
    assert alarms(group([record("v3", 0, 0.5)])[0]) == []


def test_a_run_that_went_on_elsewhere_is_no_alarm_and_one_with_other_settings_is():
    moved = replace(record("v1", 0, 0.5), tags={"changed.cluster.address": "a -> b", "changed.tracking.uri": "c -> d"})
    assert alarms(group([moved])[0]) == []
    other = replace(record("v1", 0, 0.5), tags={"changed.cluster.address": "a -> b", "changed.train.grpo.kl": "0 -> 1"})
    (said,) = alarms(group([other])[0])
    assert said == "v1, seed 0: continued with other settings than it began with: train.grpo.kl"
