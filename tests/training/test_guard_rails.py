"""Guard rails: when they speak, when they end training, and that a restart does not make them forget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState, TrainingArguments

from codegrep.config import GuardRailsConfig, RailConfig
from codegrep.training.callbacks import CheckpointReport, StepLog, TimeLimit, read_progress
from codegrep.training.guard_rails import Alarm, GuardRails, Rail
from tests.training.made_rollouts import GUARD_RAILS
from tests.training.test_reference_loss import RECIPES
from tests.training.varied_rollouts import Varied, trainer_for

KL = RailConfig("policy/kl", above=0.3)


def said(rail: Rail, values: list[float]) -> list[int]:
    return [step for step, value in enumerate(values, 1) if rail.see(step, value) is not None]


def test_a_limit_is_spoken_of_once_and_again_after_a_way_back() -> None:
    assert said(Rail("kl", KL, 1), [0.1, 0.3, 0.31, 0.5, 0.2, 0.4]) == [3, 6]  # 0.3 is not above 0.3


def test_a_mean_at_the_limit_is_not_above_it() -> None:
    assert sum([0.95] * 6) / 6 > 0.95
    assert said(Rail("dead", RailConfig("group/dead_rate", above=0.95), 6), [0.95] * 6) == []


def test_the_window_is_a_mean() -> None:
    rail = Rail("kl", KL, 3)
    assert said(rail, [0.9, 0.0]) == []  # not full
    alarm = rail.see(3, 0.3)
    assert alarm == Alarm(3, "kl", "policy/kl", pytest.approx(0.4), 0.3, "tag")  # type: ignore[arg-type]
    assert str(alarm) == "guard rail kl: policy/kl is 0.4, above 0.3, at step 3"


def test_a_multiple_of_the_start() -> None:
    rail = Rail("entropy", RailConfig("policy/entropy", times_start=2.0), 2)
    # The first window's mean is 1.0: the limit is 2.0.
    assert said(rail, [0.5, 1.5, 2.2, 1.7, 2.4]) == [5]


def test_state_survives_a_restart() -> None:
    config = RailConfig("policy/entropy", times_start=2.0)
    values = [0.5, 1.5, 2.2, 1.7, 2.4, 2.5, 0.1, 0.1, 9.0]
    whole = Rail("entropy", config, 2)
    for cut in range(len(values)):
        first, second = Rail("entropy", config, 2), Rail("entropy", config, 2)
        before = said(first, values[:cut])
        second.restore(json.loads(json.dumps(first.state())))
        after = [cut + step for step in said(second, values[cut:])]
        assert before + after == [5, 9]
    assert said(whole, values) == [5, 9]


def test_a_limit_of_the_configuration_is_not_overruled_by_a_checkpoint() -> None:
    rail = Rail("kl", replace(KL, above=0.5), 1)
    rail.restore({"recent": [0.4], "limit": 0.3, "beyond": True})
    assert said(rail, [0.4, 0.6]) == [2]


def rails_of(rails: dict[str, RailConfig], limit: TimeLimit) -> tuple[GuardRails, list[Alarm]]:
    alarms: list[Alarm] = []
    return GuardRails(GuardRailsConfig(1, rails), dict, limit, alarms.append), alarms


def log(rails: GuardRails, step: int, rank_zero: bool = True, **numbers: float) -> None:
    state = TrainerState(global_step=step, is_world_process_zero=rank_zero)
    rails.on_log(TrainingArguments(), state, TrainerControl(), {"loss": 0.0, **numbers})


def test_off_rails_and_metrics_that_were_not_measured() -> None:
    rails, alarms = rails_of({"kl": replace(KL, action="off"), "parse": RailConfig("errors/parse", 0.3)}, TimeLimit(0))
    log(rails, 1, **{"policy/kl": 9.0})
    log(rails, 2, **{"errors/parse": float("nan")})
    assert not alarms and rails.metrics() == {"guard/parse": 0.0}
    log(rails, 3, **{"errors/parse": 0.4})
    assert [a.rail for a in alarms] == ["parse"] and rails.metrics() == {"guard/parse": 1.0}


def test_only_the_first_rank_speaks_but_all_stop() -> None:
    for rank_zero in (True, False):
        limit = TimeLimit(0)
        rails, alarms = rails_of({"kl": replace(KL, action="stop")}, limit)
        log(rails, 1, rank_zero, **{"policy/kl": 0.4})
        assert len(alarms) == int(rank_zero)
        control = TrainerControl()
        limit.on_step_end(TrainingArguments(), TrainerState(global_step=2, max_steps=9), control)
        assert control.should_training_stop and control.should_save
        assert limit.reason.startswith("stopped after step 2 of 9: guard rail kl: policy/kl is 0.4")


def test_a_stop_waits_for_the_end_of_a_batch() -> None:
    limit = TimeLimit(0, every=3)
    limit.stop("enough")
    stops = []
    for step in range(1, 7):
        control = TrainerControl()
        limit.on_step_end(TrainingArguments(), TrainerState(global_step=step, max_steps=9), control)
        stops.append(control.should_training_stop)
    assert stops == [False, False, True, False, False, True]


def test_what_is_shipped_names_metrics_that_exist_and_the_papers_limits() -> None:
    from codegrep.tracking.names import describe

    assert {name: rail.above or rail.times_start for name, rail in GUARD_RAILS.rails.items()} == {
        "kl": 0.3,
        "entropy": 2.0,
        "clipped": 0.2,
        "dead_groups": 0.5,
        "parse_errors": 0.3,
    }
    assert all(describe(rail.metric) for rail in GUARD_RAILS.rails.values())
    assert describe("guard/kl")


def test_a_training_stops_with_a_checkpoint_and_says_why(nano: Path, tmp_path: Path) -> None:
    trainer, _ = trainer_for(RECIPES["v3"], nano, tmp_path, Varied(), steps=6, save_every=10)
    limit = TimeLimit(0)
    alarms: list[Alarm] = []
    config = GuardRailsConfig(
        1,
        {
            "kl": RailConfig("policy/kl", above=1e-9, action="stop"),
            "length": RailConfig("completions/generated", above=1.0, action="warn"),
        },
    )
    rails = GuardRails(config, trainer.grpo_names, limit, alarms.append)
    saved: list[tuple[int, Path]] = []
    step_log = StepLog(lambda step, numbers: None, trainer.grpo_names)
    report = CheckpointReport(
        lambda step, folder, numbers: saved.append((step, read_all(folder))),
        step_log,
        limit,
        lambda: {"guard_rails": rails.state()},
    )
    for callback in (rails, step_log, limit, report):
        trainer.add_callback(callback)
    trainer.train()
    assert trainer.state.global_step == 2  # seen after the first step, ended with the second
    assert {alarm.rail for alarm in alarms} == {"kl", "length"}
    ((step, progress),) = saved
    assert step == 2 and "guard rail kl" in progress["stopped"]
    assert progress["guard_rails"]["kl"]["beyond"] is True


def read_all(folder: Path) -> Any:
    return read_progress(folder)
