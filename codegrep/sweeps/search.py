"""A search over values of the configuration with Ray Tune: Optuna proposes, ASHA ends weak trials early.

A trial is an ordinary run in a process of its own (sweeps.job_process) with some keys set. It measures its checkpoints
on selection issues (pipeline.checkpoint_selection), and the scores go to Tune. So trials share prepared data and warm
start, are runs in MLflow, and continue from their checkpoints when the search is started again.

The story in three modules: this one names trials, runs them and reports; `search_tune` has Tune decide which to begin
and which to end; `search_record` keeps all that was proposed, reported and decided, so that a killed search goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from codegrep.compose import compose_overrides, load
from codegrep.config import Config, SearchConfig
from codegrep.errors import CodegrepError
from codegrep.hydra_settings import PassedOn
from codegrep.metrics.scores import first_best
from codegrep.overrides import override, typed_command
from codegrep.pipeline.checkpoint_selection import CHECKPOINTS_FILE, best, read
from codegrep.pipeline.run import stoppable
from codegrep.pipeline.run_identity import run_name
from codegrep.runtime.artifacts import Places, fingerprint, write_json
from codegrep.runtime.process_lock import hold
from codegrep.runtime.progress import Progress
from codegrep.runtime.ray_connection import address, connected
from codegrep.runtime.resources import Ledger, Request, living_nodes, request_of
from codegrep.sweeps.job_process import JobProcess
from codegrep.sweeps.job_results import last_line
from codegrep.sweeps.search_record import METRIC, TIME, SearchRecord, TrialRun, values_of
from codegrep.sweeps.sweep import STOP_SECONDS
from codegrep.tracking.sweep import job_settings, open_sweep

_STAGES = "stages=[prepare,warm_start,train]"  # the held-out issues that are reported on are not looked at
_POLL_SECONDS = 1.0


def search(config: Config, overrides: Sequence[str], hydra: PassedOn = PassedOn()) -> None:  # noqa: B008  # frozen
    """Run the search, or continue it; print a table of trials and what to type for the best one.

    Args:
        config: of the experiment, with config.sweep.
        overrides: of the command line, as they were typed.
        hydra: what else of the command line the processes of the trials read.

    Raises:
        CodegrepError: no trial was measured.
        KeyboardInterrupt: after Ctrl-C; the same command continues.
    """
    assert config.sweep is not None
    base = [o for o in overrides if not _of_search(o)]
    search_id = f"{config.sweep.name}-{_digest(config, base)}"
    folder = Places(config.outputs_path).sweeps / search_id
    base += [o for o in _checkpoint_selection(config) if o not in base]
    with hold(folder, "search"):
        _search(config, config.sweep, CommandLine(tuple(base), hydra), search_id, folder)


@dataclass(frozen=True)
class CommandLine:
    """What was typed for the search, without what concerns the search alone."""

    overrides: tuple[str, ...]
    hydra: PassedOn

    def trial(self, values: Mapping[str, Any]) -> TrialRun:
        """Return the run of a trial with these values."""
        own = (*self.overrides, _STAGES, *(override(key, value) for key, value in values.items()))
        arguments = (*self.hydra.options, *self.hydra.overrides, *own)
        try:
            return TrialRun(arguments, run_name(load(compose_overrides([*self.hydra.overrides, *own]))))
        except CodegrepError as error:
            return TrialRun(arguments, "", str(error))

    def report(self, values: Mapping[str, Any]) -> str:
        """Return what to type to have a trial's checkpoint reported on."""
        own = (override(key, value) for key, value in values.items())
        return typed_command([*self.hydra.options, *self.hydra.overrides, *self.overrides, *own])


def _search(config: Config, sweep: SearchConfig, command_line: CommandLine, search_id: str, folder: Path) -> None:
    progress = Progress()
    places = Places(config.outputs_path)
    parent = open_sweep(config.tracking, config.outputs_path, search_id)
    status = "KILLED"
    try:
        record = SearchRecord(folder)
        with stoppable(), connected(config.cluster, folder / "ray.log"):
            from ray import tune  # after connected has made its settings

            from codegrep.sweeps.search_tune import fit

            settings = {**job_settings(search_id, parent.run_id), "cluster.address": address()}
            extra = tuple(override(key, value) for key, value in settings.items())
            trial = Trial(extra, str(folder), str(Path.cwd()), str(places.runs))
            # Tune wants a request for the watcher: a byte takes no core from the process.
            trainable = tune.with_resources(trial.__call__, {"CPU": 0, "memory": 1})
            at_once = _room(sweep, request_of(config))
            steps = config.train.grpo.steps
            fitted = fit(sweep, record, trainable, command_line.trial, steps=steps, at_once=at_once, folder=folder)
        rows = _rows(sweep, record, fitted.errors, places.runs)
        write_json(folder / "trials.json", rows)
        parent.table(rows, "sweep/outcomes.json")
        progress.show(_table(search_id, sweep, rows))
        if fitted.exhausted:
            progress.say(
                f"No point of the space is left that no trial has: {len(rows)} trials instead of {sweep.trials}"
            )
        for row in rows:
            if row["error"]:
                progress.say(f"trial {row['trial']}: {row['error']}")
        measured = [row for row in rows if row[METRIC] is not None]
        status = "FINISHED" if measured else "FAILED"
        if not measured:
            raise CodegrepError(f"no trial of {search_id} was measured", f"See the logs in {folder}")
        chosen = measured[first_best([row[METRIC] for row in measured])]
        progress.say(f"Best on the selection issues: F0.5 {chosen[METRIC]:.3f} at step {chosen[TIME]}. To report it:")
        progress.say(f"  {command_line.report({key: chosen[key] for key in sweep.space})}")
    finally:
        parent.finish(status)


@dataclass(frozen=True)
class Trial:
    """What Tune calls for each trial; picklable.

    Attributes:
        extra: overrides of every trial.
        folder: of the search.
        working_folder: that the search was started in.
        runs: folder of all runs.
    """

    extra: tuple[str, ...]
    folder: str
    working_folder: str
    runs: str

    def __call__(self, proposed: Mapping[str, Any]) -> None:
        """Run one trial; report each checkpoint to Tune as it is measured.

        Args:
            proposed: see search_tune.fit.

        Raises:
            CodegrepError: the run did not end well.
        """
        from ray import tune

        if proposed["refused"]:
            raise CodegrepError(proposed["refused"])
        run = proposed["run"]
        measured = Path(self.runs, run, CHECKPOINTS_FILE)
        log = Path(self.folder, f"{run}.log")
        process = JobProcess()
        arguments = [*proposed["arguments"], *self.extra]
        code: list[int] = []
        runner = threading.Thread(
            target=lambda: code.append(process.run(arguments, self.working_folder, str(log), {})), daemon=True
        )
        runner.start()
        reported: set[int] = set()
        try:
            while True:
                ended = not runner.is_alive()
                for checkpoint in read(measured):
                    if checkpoint.step not in reported:
                        reported.add(checkpoint.step)
                        tune.report({METRIC: checkpoint.f05, TIME: checkpoint.step})
                if ended:
                    break
                time.sleep(_POLL_SECONDS)
        finally:
            process.stop(STOP_SECONDS)
        if not code or code[0]:
            raise CodegrepError(f"run {run} ended with {code[0] if code else 'nothing'}: {last_line(log)}")


def _room(sweep: SearchConfig, request: Request) -> int:
    """Count the trials that have room side by side. A trial's watcher takes nothing; its process asks for itself."""
    nodes, ledger, room = living_nodes(Ledger()), Ledger(), 0
    while room < sweep.trials and ledger.admit(str(room), request, nodes) is not None:
        room += 1
    if not room:
        raise CodegrepError(f"a trial asks for {request}, which no node here has", "Use a smaller scale")
    return min(room, sweep.at_once or room)


def _rows(sweep: SearchConfig, record: SearchRecord, errors: Mapping[int, str], runs: Path) -> list[dict[str, Any]]:
    """Return what became of each trial, best first."""
    rows = []
    for number, trial in enumerate(record.trials):
        measured = read(runs / trial.run / CHECKPOINTS_FILE) if trial.run else []
        top = best(measured) if measured else None
        rows.append(
            {
                **values_of(sweep, trial.point),
                METRIC: top.f05 if top else None,
                TIME: top.step if top else None,
                "trained": measured[-1].step if measured else 0,
                "run": trial.run,
                "error": _reason(errors[number]) if number in errors else "",
            }
        )
    rows.sort(key=lambda row: (row[METRIC] is None, -(row[METRIC] or 0.0), row["run"], row["error"]))
    return [{"trial": number, **row} for number, row in enumerate(rows)]


def _reason(error: str) -> str:
    """Return the last line of a trace, without the class of the error."""
    last = error.strip().split("\n")[-1]
    return last.removeprefix(f"{CodegrepError.__module__}.{CodegrepError.__name__}: ")[:300]


def _of_search(override: str) -> bool:
    key = override.partition("=")[0].lstrip("+~")
    return key == "sweep" or key.startswith("sweep.")


def _checkpoint_selection(config: Config) -> list[str]:
    """Return what conf/sweep set outside `sweep`, for the processes of trials, which do not see that file."""
    selection = config.train.checkpoint_selection
    return [
        f"train.checkpoint_selection.every={selection.every}",
        f"train.checkpoint_selection.issues={selection.issues}",
    ]


def _digest(config: Config, base: Sequence[str]) -> str:
    assert config.sweep is not None
    return fingerprint({"run": run_name(config), "search": config.sweep, "base": sorted(base)})[:8]


def _table(name: str, sweep: SearchConfig, rows: Sequence[Mapping[str, Any]]) -> Table:
    trials = Table(title=f"Search {name}", title_justify="left", box=None, pad_edge=False)
    for heading in (
        "trial",
        *(key.rpartition(".")[2] for key in sweep.space),
        "best F0.5",
        "at step",
        "trained to",
        "",
    ):
        trials.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for row in rows:
        values = [f"{row[key]:.3g}" if isinstance(row.get(key), float) else str(row.get(key)) for key in sweep.space]
        f05 = "" if row[METRIC] is None else f"{row[METRIC]:.3f}"
        trials.add_row(
            str(row["trial"]),
            *values,
            f05,
            str(row[TIME] or ""),
            str(row["trained"]),
            "failed, see below" if row["error"] else "",
        )
    return trials
