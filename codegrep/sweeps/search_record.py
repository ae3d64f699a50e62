"""What a search remembers, and what follows from it alone: the next proposal.

Tune keeps its scheduler in memory only and the rest in snapshots that lag behind: a search that was killed would go on
without what ASHA has seen. Here everything is one file, true at every moment; `search_tune` has Tune work by it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codegrep.config import SearchConfig
from codegrep.runtime.artifacts import write_json

METRIC, TIME = "f05", "step"  # what a trial reports to Tune
RECORD_FILE = "search.json"
DRAWS = 100  # of a point that no trial has yet


@dataclass(frozen=True)
class TrialRun:
    """The run of a trial.

    Attributes:
        arguments: of `python -m codegrep`.
        run: name of its run folder.
        refused: why its configuration cannot be run; "" where it can.
    """

    arguments: tuple[str, ...]
    run: str
    refused: str = ""


@dataclass
class Proposed:
    """A trial.

    Attributes:
        point: key -> number, or the place of a choice, which may be a list.
        run: its run folder; "" where its configuration was refused.
    """

    point: dict[str, Any]
    run: str


@dataclass(frozen=True)
class Report:
    """The score of a checkpoint as the trial reported it. stop: what ASHA decided."""

    trial: int
    step: int
    f05: float
    stop: bool


class SearchRecord:
    """Trials in the order of their proposals, reports and ends in theirs.

    Args:
        folder: of the search; the record of an earlier start is read.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RECORD_FILE
        self.trials: list[Proposed] = []
        self.reports: list[Report] = []
        self.ended: list[int] = []  # well: by themselves, or by ASHA
        if self._path.is_file():
            noted = json.loads(self._path.read_text(encoding="utf-8"))
            self.trials = [Proposed(**row) for row in noted["trials"]]
            self.reports = [Report(**row) for row in noted["reports"]]
            self.ended = noted["ended"]
            # Killed between the decision and the end that follows from it.
            self.ended += [r.trial for r in self.reports if r.stop and r.trial not in self.ended]

    def propose(self, point: Mapping[str, Any], run: str) -> int:
        """Note a new trial; return its number."""
        self.trials.append(Proposed(dict(point), run))
        self._write()
        return len(self.trials) - 1

    def rename(self, trial: int, run: str) -> None:
        """Note the run of a trial that is begun again."""
        self.trials[trial].run = run
        self._write()

    def report(self, report: Report) -> None:
        """Note a report and what was decided."""
        self.reports.append(report)
        self._write()

    def end(self, trial: int) -> None:
        """Note that a trial has ended well."""
        if trial not in self.ended:
            self.ended.append(trial)
            self._write()

    def decided(self, trial: int, step: int) -> Report | None:
        """Return the earlier report of a step: a trial that is begun again reports its checkpoints again."""
        return next((r for r in self.reports if (r.trial, r.step) == (trial, step)), None)

    def unfinished(self) -> list[int]:
        """Return the trials that were killed or failed; they are begun again."""
        return [trial for trial in range(len(self.trials)) if trial not in self.ended]

    def result(self, trial: int) -> float:
        """Return the F0.5 of the last checkpoint that a trial reported."""
        return [r.f05 for r in self.reports if r.trial == trial][-1]

    def _write(self) -> None:
        write_json(
            self._path,
            {
                "trials": [asdict(trial) for trial in self.trials],
                "reports": [asdict(report) for report in self.reports],
                "ended": self.ended,
            },
        )


def next_point(
    sweep: SearchConfig, record: SearchRecord, besides: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any] | None:
    """Return what Optuna proposes after the trials that have ended: a function of the record, whenever it is asked.

    A point that a trial has already is drawn again, at random, since the same run twice says nothing new.

    Args:
        sweep: of the configuration.
        record: of the search.
        besides: points that are not wanted either.

    Returns:
        A new point; None where none was found.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {key: _distribution(values) for key, values in sweep.space.items()}
    study = optuna.create_study(direction="maximize")
    for trial in record.ended:
        point, value = record.trials[trial].point, record.result(trial)
        study.add_trial(optuna.trial.create_trial(params=point, distributions=space, value=value))
    tried = [*(trial.point for trial in record.trials), *besides]
    for draw in range(DRAWS):
        seed = _seed(sweep.seed, len(record.trials), draw)
        samplers = optuna.samplers
        study.sampler = samplers.RandomSampler(seed=seed) if draw else samplers.TPESampler(seed=seed)
        asked = study.ask(space)
        study.tell(asked, state=optuna.trial.TrialState.FAIL)  # what came of it is in the record
        if asked.params not in tried:
            return dict(asked.params)
    return None


def values_of(sweep: SearchConfig, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a point by key of the configuration."""
    return {
        key: values["choices"][point[key]] if "choices" in values else point[key] for key, values in sweep.space.items()
    }


def _distribution(values: Mapping[str, Any]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if "choices" in values:
        return CategoricalDistribution(range(len(values["choices"])))
    if values.get("integer"):
        return IntDistribution(int(values["low"]), int(values["high"]), log=bool(values.get("log")))
    return FloatDistribution(float(values["low"]), float(values["high"]), log=bool(values.get("log")))


def _seed(seed: int, trial: int, draw: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{trial}/{draw}".encode()).digest()[:4], "big")
