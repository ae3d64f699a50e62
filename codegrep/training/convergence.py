"""When GRPO ends before its last planned step: the reward has stopped rising while KL is in bounds; or a pause, so that
the policy can be measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from codegrep.config import EarlyStopConfig
from codegrep.metrics.scores import ROUNDING

MEMORY = ("reward/total", "policy/kl")  # what a trainer's log has to hold for EarlyStop


class Reason(Protocol):
    """Where it is noted why training ended early (callbacks.TimeLimit)."""

    reason: str


@dataclass(frozen=True)
class StepResult:
    """Mean reward and KL (nats/token) of one optimiser step; None where KL was not measured."""

    step: int
    reward: float
    kl: float | None


def plateau(history: Sequence[StepResult], rule: EarlyStopConfig) -> str:
    """Why training should end now, or "".

    CodeGrep (arXiv 2608.05886, section 3.6) stopped at step 897 of 2,000 "when the reward no longer rose and KL was
    safe", without giving the rule. The reading here: the mean reward over `window` steps has not risen by `min_gain`
    above its best for `patience` steps, and mean KL over the last window is at most `max_kl`. With KL out of bounds the
    run is not called converged and goes on; KL that was not measured has no bounds.

    Args:
        history: steps in order, from the first.
        rule: see EarlyStopConfig.
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
    """Ends training by `plateau`, with a checkpoint. Its memory is the trainer's log, which checkpoints carry along.

    Args:
        rule: see EarlyStopConfig.
        limit: where the reason is noted.
        every: stop only after a multiple of so many steps (inner updates of one batch are not torn apart).
    """

    def __init__(self, rule: EarlyStopConfig, limit: Reason, every: int = 1) -> None:
        self._rule, self._limit, self._every = rule, limit, every

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Judge after each step; the same on every rank, since TRL logs what it has gathered from all."""
        due = self._rule.enabled and state.global_step < state.max_steps and state.global_step % self._every == 0
        if due and (reason := plateau(steps_of(state.log_history), self._rule)):
            self._limit.reason = reason
            control.should_training_stop = True
            control.should_save = True
        return control


def steps_of(log_history: Sequence[Mapping[str, Any]]) -> list[StepResult]:
    """The steps of a trainer's log; the later entry counts where a step was done twice."""
    found = {}
    reward, kl = MEMORY
    for entry in log_history:
        if reward in entry and "step" in entry:
            step = int(entry["step"])
            found[step] = StepResult(step, float(entry[reward]), float(entry[kl]) if kl in entry else None)
    return [found[step] for step in sorted(found)]


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
        """See TrainerCallback."""
        if self._step and state.global_step >= self._step:
            control.should_save = True
            control.should_training_stop = True
        return control
