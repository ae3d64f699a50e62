"""When GRPO ends early."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState

from codegrep.config import EarlyStopConfig
from codegrep.training import loops
from codegrep.training.callbacks import PROGRESS_FILE, TimeLimit
from codegrep.training.convergence import EarlyStop, PauseAt, StepResult, plateau, steps_of

RULE = EarlyStopConfig(enabled=True, window=10, patience=20, min_gain=0.01, max_kl=0.5, min_steps=30)


def run(rewards: list[float], kl: float = 0.1) -> list[StepResult]:
    return [StepResult(step, reward, kl) for step, reward in enumerate(rewards, 1)]


def first_stop(rewards: list[float], rule: EarlyStopConfig = RULE, kl: float = 0.1) -> int | None:
    steps = run(rewards, kl)
    return next((n for n in range(1, len(steps) + 1) if plateau(steps[:n], rule)), None)


def test_a_reward_that_rises_is_not_stopped() -> None:
    assert first_stop([0.01 * n for n in range(200)]) is None


def test_a_plateau_stops_after_its_patience() -> None:
    """0.5 from step 11 on: the window mean last rises at step 20, where it holds 0.5 alone; 20 more steps."""
    assert first_stop([0.0] * 10 + [0.5] * 90) == 40
    assert "stopped after step 40" in plateau(run([0.0] * 10 + [0.5] * 30), RULE)


def test_noise_below_the_gain_is_no_rise() -> None:
    assert first_stop([0.5 + 0.004 * (n % 2) for n in range(100)]) == 30


def test_a_rise_by_just_the_gain_is_one() -> None:
    gain = replace(RULE, window=1, min_gain=0.1)
    assert 0.2 + 0.1 > 0.3
    assert first_stop([0.2] * 10 + [0.3] * 60, gain) == first_stop([0.2] * 10 + [0.4] * 60, gain)


def test_kl_out_of_bounds_is_no_convergence() -> None:
    assert first_stop([0.5] * 100, kl=0.6) is None
    assert first_stop([0.5] * 100, kl=0.5) == 30


def test_never_before_its_least_steps() -> None:
    assert first_stop([0.5] * 100, replace(RULE, min_steps=77)) == 77


def test_a_late_rise_begins_the_patience_anew() -> None:
    rewards = [0.5] * 25 + [0.9] * 60
    assert first_stop(rewards) == 25 + 10 + 20


def log(rewards: list[float]) -> TrainerState:
    history = [
        {"step": n, "reward/total": reward, "policy/kl": 0.1, "loss": 1.0} for n, reward in enumerate(rewards, 1)
    ]
    state = TrainerState(max_steps=1000, global_step=len(rewards))
    state.log_history = [*history, {"step": len(rewards), "train_runtime": 3.0}]
    return state


@pytest.mark.parametrize(("steps", "stops"), [(29, False), (30, True)])
def test_the_callback_reads_the_trainers_own_log(steps: int, stops: bool) -> None:
    reason, control = TimeLimit(0), TrainerControl()
    EarlyStop(RULE, reason).on_log(None, log([0.5] * steps), control)  # type: ignore[arg-type]
    assert control.should_training_stop is stops and control.should_save is stops and bool(reason.reason) is stops


def test_inner_updates_are_not_torn_apart() -> None:
    control = TrainerControl()
    EarlyStop(RULE, TimeLimit(0), every=4).on_log(None, log([0.5] * 31), control)  # type: ignore[arg-type]
    assert not control.should_training_stop


def test_the_steps_of_a_log() -> None:
    entries = [{"step": 1, "reward/total": 0.1}, {"step": 2, "reward/total": 0.3, "policy/kl": 0.4}, {"step": 2}]
    assert steps_of(entries) == [StepResult(1, 0.1, None), StepResult(2, 0.3, 0.4)]


def test_steps_without_a_kl_are_not_steps_with_a_kl_of_zero() -> None:
    """Every other step trained on nothing; in the rest KL is out of bounds."""
    steps = [StepResult(n, 0.5, 0.6 if n % 2 else None) for n in range(1, 101)]
    assert plateau(steps, RULE) == ""
    assert plateau([replace(step, kl=None) for step in steps], RULE)


@pytest.mark.parametrize(("at", "step", "stops"), [(0, 5, False), (5, 4, False), (5, 5, True), (5, 7, True)])
def test_a_pause(at: int, step: int, stops: bool) -> None:
    control = PauseAt(at).on_step_end(None, TrainerState(global_step=step), TrainerControl())  # type: ignore[arg-type]
    assert control.should_training_stop is stops and control.should_save is stops


@pytest.mark.parametrize(("stopped", "trained"), [("", 1), ("stopped after step 7: 5 minutes are used up", 0)])
def test_training_that_had_ended_does_not_go_on_when_it_is_continued(
    tmp_path: Path, stopped: str, trained: int
) -> None:
    """Whatever ended it: the reward's plateau, a guard rail, the time limit."""
    (tmp_path / PROGRESS_FILE).write_text(json.dumps({"step": 7, "stopped": stopped}))
    calls: list[Any] = []
    trainer: Any = SimpleNamespace(add_callback=lambda _: None, train=lambda **given: calls.append(given))
    log: Any = None
    loops._train(trainer, log, tmp_path, TimeLimit(0))
    assert len(calls) == trained
