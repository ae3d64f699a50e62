"""When GRPO ends before its last step: the reward has stopped rising while KL is in bounds, or a measurement is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from codegrep.config import EarlyStopConfig
from codegrep.metrics.scores import ROUNDING
from codegrep.training.callbacks import TimeLimit

MEMORY = ("reward/total", "policy/kl")  # metrics that EarlyStop reads from the trainer's log


@dataclass(frozen=True)
class StepResult:
    """Mean reward and KL (nats a token) of one optimiser step; KL is None where it was not measured."""

    step: int
    reward: float
    kl: float | None


def plateau(history: Sequence[StepResult], rule: EarlyStopConfig) -> str:
    """Return why training should end after the last step, or "".

    CodeGrep (arXiv 2608.05886, section 3.6) stopped at step 897 of 2,000 "when the reward no longer rose and KL was
    safe", without giving the rule. Here: the mean reward over `window` steps has not risen by `min_gain` above its best
    for `patience` steps, and mean KL over the last window is at most `max_kl`. KL that was not measured is in bounds.

    Args:
        history: all steps in order.
        rule: window, patience and bounds.
    """
    if len(history) < max(rule.window, rule.min_steps):
        return ""
    rewards = [entry.reward for entry in history]
    total = sum(rewards[: rule.window])
    means = [total / rule.window]
    for end in range(rule.window, len(rewards)):
        total += rewards[end] - rewards[end - rule.window]
        means.append(total / rule.window)
    best, best_at = means[0], 0
    for at, mean in enumerate(means):
        if mean >= best + rule.min_gain - ROUNDING:
            best, best_at = mean, at
    flat = len(means) - 1 - best_at
    measured = [entry.kl for entry in history[-rule.window :] if entry.kl is not None]
    kl = fmean(measured) if measured else 0.0
    if flat < rule.patience or kl > rule.max_kl:
        return ""
    return (
        f"stopped after step {history[-1].step}: for {flat} steps the mean reward of {rule.window} steps has not risen "
        f"by {rule.min_gain:g} above {best:.3f}; KL {kl:.3f} is within {rule.max_kl:g}"
    )


class EarlyStop(TrainerCallback):
    """Ends training by `plateau`, with a checkpoint. Checkpoints carry the trainer's log, which is its memory.

    Args:
        rule: train.early_stop.
        limit: its `reason` is set.
        every: stop only after a multiple of so many steps, so that the updates of one batch stay together.
    """

    def __init__(self, rule: EarlyStopConfig, limit: TimeLimit, every: int = 1) -> None:
        self._rule, self._limit, self._every = rule, limit, every

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Judge after each step. All ranks decide alike, for TRL logs what it gathers from all."""
        due = self._rule.enabled and state.global_step < state.max_steps and state.global_step % self._every == 0
        if due and (reason := plateau(steps_of(state.log_history), self._rule)):
            self._limit.reason = reason
            control.should_training_stop = True
            control.should_save = True
        return control


def steps_of(log_history: Sequence[Mapping[str, Any]]) -> list[StepResult]:
    """Return the steps of a trainer's log."""
    reward, kl = MEMORY
    return [
        StepResult(int(entry["step"]), float(entry[reward]), float(entry[kl]) if kl in entry else None)
        for entry in log_history
        if reward in entry
    ]


class PauseAt(TrainerCallback):
    """Ends this start of training after a step, with a checkpoint; the next start goes on from there.

    Args:
        step: optimiser steps; 0 never pauses.
    """

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Pause if the step is reached."""
        if self._step and state.global_step >= self._step:
            control.should_save = True
            control.should_training_stop = True
        return control
