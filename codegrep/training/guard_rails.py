"""Guard rails of GRPO: after each step, metrics are compared with the limits at which the papers report trouble."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from codegrep.config import GuardRailsConfig, RailConfig
from codegrep.metrics.scores import ROUNDING
from codegrep.training.callbacks import TimeLimit


@dataclass(frozen=True)
class Alarm:
    """A limit that was passed.

    Attributes:
        step: optimiser step at which it was passed.
        rail: its name in train.guard_rails.rails.
        metric: what was measured.
        value: mean over the window that ended with `step`.
        limit: what the value is above.
        action: warn, tag or stop.
    """

    step: int
    rail: str
    metric: str
    value: float
    limit: float
    action: str

    def __str__(self) -> str:
        return f"guard rail {self.rail}: {self.metric} is {self.value:.3g}, above {self.limit:.3g}, at step {self.step}"


OnAlarm = Callable[[Alarm], None]


class Rail:
    """One limit on a metric's mean over a window of steps. Before the window is full there is no alarm.

    With `times_start` the first full window sets the limit.
    """

    def __init__(self, name: str, config: RailConfig, window: int) -> None:
        self.name = name
        self.config = config
        self.limit = config.above
        self.beyond = False
        self._recent: deque[float] = deque(maxlen=window)

    def see(self, step: int, value: float) -> Alarm | None:
        """Take a step's value; return an alarm if the mean has just passed the limit."""
        self._recent.append(value)
        if len(self._recent) < (self._recent.maxlen or 0):
            return None
        mean = sum(self._recent) / len(self._recent)
        if self.limit is None:
            assert self.config.times_start is not None
            self.limit = self.config.times_start * mean
            return None
        before, self.beyond = self.beyond, mean > self.limit + ROUNDING
        if self.beyond and not before:
            return Alarm(step, self.name, self.config.metric, mean, self.limit, self.config.action)
        return None

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        return {"recent": list(self._recent), "limit": self.limit, "beyond": self.beyond}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`. A limit that the configuration sets stays the configuration's."""
        self._recent.extend(float(value) for value in state["recent"])
        if self.config.above is None and state["limit"] is not None:
            self.limit = float(state["limit"])
        self.beyond = bool(state["beyond"])


class GuardRails(TrainerCallback):
    """Compares every step's metrics, which are equal on all ranks, with the rails.

    Args:
        config: train.guard_rails.
        rename: from the trainer's log to the project's names.
        limit: ends training at an alarm with action "stop".
        on_alarm: called on rank 0.
        resumed: `state()` of the checkpoint that training continues from.
    """

    def __init__(
        self,
        config: GuardRailsConfig,
        rename: Callable[[Mapping[str, Any]], dict[str, float]],
        limit: TimeLimit,
        on_alarm: OnAlarm,
        resumed: Mapping[str, Any] | None = None,
    ) -> None:
        self._rename, self._limit, self._on_alarm = rename, limit, on_alarm
        self.rails = [
            Rail(name, rail, config.window) for name, rail in sorted(config.rails.items()) if rail.action != "off"
        ]
        for rail in self.rails:
            if resumed and rail.name in resumed:
                rail.restore(resumed[rail.name])
                if rail.beyond and rail.config.action == "stop":  # training was interrupted before it could end
                    limit.stop(f"guard rail {rail.name}: {rail.config.metric} was above its limit")

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Compare one step."""
        if not logs or "loss" not in logs:  # the closing log of a run
            return
        metrics = self._rename(logs)
        for rail in self.rails:
            value = metrics.get(rail.config.metric)
            if value is None or value != value:  # not measured in this step
                continue
            alarm = rail.see(state.global_step, value)
            if alarm is None:
                continue
            if alarm.action == "stop":
                self._limit.stop(str(alarm))
            if state.is_world_process_zero:
                self._on_alarm(alarm)

    def metrics(self) -> dict[str, float]:
        """Return 1 for each rail that is passed now, else 0."""
        return {f"guard/{rail.name}": float(rail.beyond) for rail in self.rails}

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        return {rail.name: rail.state() for rail in self.rails}
