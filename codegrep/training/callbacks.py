"""Callbacks of both trainers: log a step, stop in time, report checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

OnLog = Callable[[int, dict[str, float]], None]
ReportCheckpoint = Callable[[int, Path, Mapping[str, float]], None]
PROGRESS_FILE = "codegrep_progress.json"


class StepLog(TrainerCallback):
    """Passes the metrics of each step to `on_log` on rank 0.

    Args:
        on_log: called with (optimiser step, metrics).
        rename: from the trainer's log to the project's names.
    """

    def __init__(self, on_log: OnLog, rename: Callable[[Mapping[str, Any]], dict[str, float]]) -> None:
        self._on_log = on_log
        self._rename = rename
        self.last: dict[str, float] = {}

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log one step."""
        metrics = self._rename(logs or {})
        if metrics and state.is_world_process_zero:
            self.last.update(metrics)  # not replaced: a run's closing log (train_runtime) has no metrics of a step
            self._on_log(state.global_step, metrics)


class TimeLimit(TrainerCallback):
    """Ends training with a checkpoint, after some minutes or on request; `reason` then says why.

    Args:
        minutes: counted over restarts; 0 means no limit.
        every: stop only after a multiple of so many steps, so that the updates of one batch stay together.
        resumed: seconds used before this start.
    """

    def __init__(self, minutes: float, every: int = 1, resumed: float = 0.0) -> None:
        self._limit = minutes * 60
        self._every = every
        self._started = time.monotonic() - resumed
        self._requested = ""
        self.reason = ""

    def stop(self, why: str) -> None:
        """End training after the next step that may be the last. Every rank has to call it at the same step."""
        self._requested = self._requested or why

    @property
    def used(self) -> float:
        """Seconds of training so far."""
        return time.monotonic() - self._started

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Stop if it is time; always save after the last step."""
        late = self._limit and self.used >= self._limit
        why = self._requested or (f"{self._limit / 60:g} minutes are used up" if late else "")
        if why and state.global_step % self._every == 0 and state.global_step < state.max_steps:
            where = f"stopped after step {state.global_step} of {state.max_steps}"
            self.reason = f"{where}: {why}; the learning rate schedule was cut"
            control.should_training_stop = True
            control.should_save = True
        if state.global_step >= state.max_steps:
            control.should_save = True
        return control


class CheckpointReport(TrainerCallback):
    """Reports every checkpoint, on every rank equally often, for Ray Train waits for all ranks.

    Args:
        report: called with (step, folder, last metrics).
        log: has the last metrics.
        limit: has the seconds used and the reason of an early stop.
        notes: plain data to write into the checkpoint beside the progress; `read_progress` returns it.
    """

    def __init__(
        self,
        report: ReportCheckpoint,
        log: StepLog,
        limit: TimeLimit,
        notes: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._report, self._log, self._limit, self._notes = report, log, limit, notes

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Report one checkpoint."""
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero:
            progress = {
                "step": state.global_step,
                "max_steps": state.max_steps,
                "used_seconds": self._limit.used,
                "stopped": self._limit.reason,
                **self._notes(),
            }
            (folder / PROGRESS_FILE).write_text(json.dumps(progress), encoding="utf-8")
        self._report(state.global_step, folder, self._log.last)


def read_progress(checkpoint: Path | None) -> dict[str, Any]:
    """Return what `CheckpointReport` wrote into a checkpoint: step, max_steps, used_seconds, stopped, and its notes."""
    path = checkpoint / PROGRESS_FILE if checkpoint else None
    if path is None or not path.is_file():
        return {}
    progress: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return progress
