"""Ray Tune at work for a search: its searcher and its scheduler both go by the record of the search."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler
from ray.tune.search import Searcher

from codegrep.config import SearchConfig
from codegrep.sweeps.search_record import DRAWS, METRIC, TIME, Report, SearchRecord, TrialRun, next_point, values_of

TRIAL = "trial"


@dataclass
class Fitted:
    """What one start of a search leaves beside the record.

    Attributes:
        errors: trial -> its trace.
        exhausted: no new point was found.
    """

    errors: dict[int, str] = field(default_factory=dict)
    exhausted: bool = False


def fit(
    sweep: SearchConfig,
    record: SearchRecord,
    trainable: Any,
    trial_run: Callable[[Mapping[str, Any]], TrialRun],
    *,
    steps: int,
    at_once: int,
    folder: Path,
) -> Fitted:
    """Run what is left of a search.

    Args:
        sweep: of the configuration.
        record: of the search; it is kept up to date.
        trainable: of Tune; gets `trial`, `arguments`, `run` and `refused`, reports METRIC and TIME.
        trial_run: gives the run of a trial with these values.
        steps: optimiser steps of a whole trial.
        at_once: most trials side by side.
        folder: of the search.
    """
    left = len(record.unfinished()) + sweep.trials - len(record.trials)
    if left <= 0:
        return Fitted()
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # Ctrl-C is this program's to handle
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a trace for each failed trial; the table has the reasons
    shutil.rmtree(folder / "tune", ignore_errors=True)  # of an earlier start; what it knew is in the record
    proposals = Proposals(sweep, record, trial_run)
    grid: Any = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            metric=METRIC,
            mode="max",
            num_samples=left,
            max_concurrent_trials=at_once,
            search_alg=proposals,
            scheduler=Asha(sweep, record, steps),
            trial_dirname_creator=lambda trial: f"trial-{trial.config[TRIAL]}",
        ),
        run_config=tune.RunConfig(name="tune", storage_path=str(folder), verbose=1),
    ).fit()
    errors = {result.config[TRIAL]: str(result.error) for result in grid if result.error}
    return Fitted(errors, proposals.exhausted)


class Proposals(Searcher):
    """First the trials that were begun and have not ended, then new points."""

    def __init__(
        self, sweep: SearchConfig, record: SearchRecord, trial_run: Callable[[Mapping[str, Any]], TrialRun]
    ) -> None:
        super().__init__(metric=METRIC, mode="max")
        self._sweep, self._record, self._trial_run = sweep, record, trial_run
        self._again = record.unfinished()
        self._numbers: dict[str, int] = {}
        self.exhausted = False

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        """Accept Tune's metric and mode."""
        return True

    def suggest(self, trial_id: str) -> Any:
        """Return what the next trial is given: its number and its run."""
        if self._again:
            number = self._again.pop(0)
            run = self._trial_run(values_of(self._sweep, self._record.trials[number].point))
            self._record.rename(number, run.run)
        else:
            drawn = self._new()
            if drawn is None:
                self.exhausted = True
                return Searcher.FINISHED
            point, run = drawn
            number = self._record.propose(point, run.run)
        self._numbers[trial_id] = number
        return {TRIAL: number, "arguments": list(run.arguments), "run": run.run, "refused": run.refused}

    def _new(self) -> tuple[dict[str, Any], TrialRun] | None:
        """Draw a point whose run is no other trial's: other values may mean the same run."""
        runs = {trial.run for trial in self._record.trials if trial.run}
        same: list[dict[str, Any]] = []
        while len(same) < DRAWS:
            point = next_point(self._sweep, self._record, same)
            if point is None:
                return None
            run = self._trial_run(values_of(self._sweep, point))
            if run.run not in runs:
                return point, run
            same.append(point)
        return None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Note a trial that has ended well."""
        if not error and result and METRIC in result:
            self._record.end(self._numbers[trial_id])

    def save(self, checkpoint_path: str) -> None:
        """Leave the file that Tune wants; the record is elsewhere."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Read nothing; the record is elsewhere."""


class Asha(FIFOScheduler):
    """Tune's ASHA, which is told again what was reported in earlier starts, in that order.

    A checkpoint that a trial reports again is decided as it was.
    """

    def __init__(self, sweep: SearchConfig, record: SearchRecord, steps: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record
        self._asha = ASHAScheduler(
            time_attr=TIME,
            metric=METRIC,
            mode="max",
            max_t=steps,
            grace_period=min(sweep.grace, steps),
            reduction_factor=sweep.reduction,
        )
        self._known: set[int] = set()
        for report in record.reports:
            self._stops(report.trial, report.step, report.f05)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Decide whether a trial goes on after a checkpoint, and note it."""
        if METRIC not in result:  # Tune's own last word of a trial that reported nothing
            return self.CONTINUE
        number, step, f05 = trial.config[TRIAL], int(result[TIME]), float(result[METRIC])
        known = self._record.decided(number, step)
        if known is None:
            known = Report(number, step, f05, self._stops(number, step, f05))
            self._record.report(known)
        return self.STOP if known.stop else self.CONTINUE

    def _stops(self, number: int, step: int, f05: float) -> bool:
        trial: Any = SimpleNamespace(trial_id=str(number))  # Tune's ids are others at each start
        controller: Any = None
        if number not in self._known:
            self._known.add(number)
            self._asha.on_trial_add(controller, trial)
        decision = self._asha.on_trial_result(controller, trial, {TIME: step, METRIC: f05})
        return bool(decision == self.STOP)
