"""Guard rails of GRPO: after each step some metrics are held against limits, and what is beyond them is said.

The limits are those of the papers' own trouble (SPEC 1.6): KL, entropy, truncated completions, groups without signal,
calls that cannot be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from codegrep.config import GuardRailsConfig, RailConfig
from codegrep.metrics.scores import ROUNDING
from codegrep.training.callbacks import TimeLimit


@dataclass(frozen=True)
class Alarm:
    """A limit that was passed.

    Attributes:
        rail: its name in train.guard_rails.rails. metric: what was measured.
        value: mean over the window that ended with `step`. limit: what it is above.
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


@dataclass
class Rail:
    """One limit and the values that were seen. The window is a mean over so many steps; before it is full nothing is
    said. With times_start the limit is set by the first full window.
    """

    name: str
    config: RailConfig
    window: int
    recent: deque[float] = field(default_factory=deque)
    limit: float | None = None
    beyond: bool = False

    def __post_init__(self) -> None:
        if self.limit is None:
            self.limit = self.config.above

    def see(self, step: int, value: float) -> Alarm | None:
        """Take a step's value; an alarm when the limit has just been passed, and again only after a way back."""
        self.recent.append(value)
        if len(self.recent) > self.window:
            self.recent.popleft()
        if len(self.recent) < self.window:
            return None
        mean = sum(self.recent) / self.window
        if self.limit is None:
            assert self.config.times_start is not None
            self.limit = self.config.times_start * mean
            return None
        before, self.beyond = self.beyond, mean > self.limit + ROUNDING
        if self.beyond and not before:
            return Alarm(step, self.name, self.config.metric, mean, self.limit, self.config.action)
        return None

    def state(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {"recent": list(self.recent), "limit": self.limit, "beyond": self.beyond}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`. A limit that the configuration names itself is the configuration's."""
        self.recent = deque((float(value) for value in state["recent"]), maxlen=None)
        while len(self.recent) > self.window:
            self.recent.popleft()
        if self.config.above is None and state["limit"] is not None:
            self.limit = float(state["limit"])
        self.beyond = bool(state["beyond"])


class GuardRails(TrainerCallback):
    """Looks at every step's numbers on every rank (they are the same on all), and speaks on rank 0.

    Args:
        config: train.guard_rails.
        rename: from the trainer's log to the project's names.
        limit: ends training when a rail with action "stop" says so.
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
        if not logs or "loss" not in logs:  # the closing log of a run
            return
        numbers = self._rename(logs)
        for rail in self.rails:
            value = numbers.get(rail.config.metric)
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
        """1 for each rail that is passed now, else 0."""
        return {f"guard/{rail.name}": float(rail.beyond) for rail in self.rails}

    def state(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {rail.name: rail.state() for rail in self.rails}
