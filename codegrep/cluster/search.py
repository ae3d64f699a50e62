"""A search over values of the configuration with Ray Tune: Optuna proposes, ASHA ends weak trials early.

A trial is an ordinary run of its own process (cluster.job_process) with some keys set; it measures its checkpoints on
selection issues (pipeline.ladder) and this module hands the figures to Tune. So trials share prepared data and warm
start, are runs in MLflow, and continue from their checkpoints when the search is started again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from codegrep.alone import alone
from codegrep.cluster.admission import Ledger
from codegrep.cluster.connect import connected
from codegrep.cluster.job_process import JobProcess
from codegrep.cluster.outcomes import last_line
from codegrep.cluster.requests import Request, request_of
from codegrep.cluster.sweep import STOP_SECONDS, living_nodes
from codegrep.compose import compose_overrides, load
from codegrep.config import Config, SearchConfig
from codegrep.errors import CodegrepError
from codegrep.pipeline.artifact import fingerprint, write_json
from codegrep.pipeline.completion import run_name
from codegrep.pipeline.ladder import LADDER_FILE, Rung, best, read
from codegrep.pipeline.run import stoppable
from codegrep.rewards.scores import first_best
from codegrep.tracking.sweep import job_settings, open_sweep

METRIC, TIME = "f05", "step"
_STAGES = "stages=[prepare,warm_start,train]"  # the held-out issues that are reported on are not looked at
_POLL_SECONDS = 1.0


def search(config: Config, overrides: Sequence[str]) -> None:
    """Run the search, or continue it; a table of trials at the end, and what to type for the best one.

    Args:
        config: of the experiment, with config.sweep.
        overrides: of the command line, as they were typed.

    Raises:
        CodegrepError: no trial was measured.
        KeyboardInterrupt: after Ctrl-C; the same command continues.
    """
    assert config.sweep is not None
    console = Console()
    base = [o for o in overrides if not _of_search(o)]
    search_id = f"{config.sweep.name}-{_digest(config, base)}"
    folder = config.outputs_path / "sweeps" / search_id
    with alone(folder, "search"):
        _search(config, overrides, base, search_id, folder, console)


def _search(
    config: Config, overrides: Sequence[str], base: list[str], search_id: str, folder: Path, console: Console
) -> None:
    assert config.sweep is not None
    parent = open_sweep(config.tracking, config.outputs_path, search_id)
    status = "KILLED"
    try:
        with stoppable(), connected(config.cluster, folder / "ray.log"):
            extra = {**job_settings(search_id, parent.run_id), "cluster.address": _address()}
            base += _ladder(config)
            trial = Trial(tuple(base), extra, str(folder), str(Path.cwd()), str(config.outputs_path))
            rows = _tune(config.sweep, request_of(config), config.train.grpo.steps, trial, folder)
        write_json(folder / "trials.json", rows)
        parent.table(rows, "sweep/outcomes.json")
        console.print(_table(search_id, config.sweep, rows))
        for row in rows:
            if row["error"]:
                console.print(f"trial {row['trial']}: {row['error']}", markup=False, highlight=False, soft_wrap=True)
        measured = [row for row in rows if row[METRIC] is not None]
        status = "FINISHED" if measured else "FAILED"
        if not measured:
            raise CodegrepError(f"no trial of {search_id} was measured", f"See the logs in {folder}")
        chosen = measured[first_best([row[METRIC] for row in measured])]
        values = " ".join(f"{key}={chosen[key]}" for key in config.sweep.space)
        console.print(f"Best on the selection issues: F0.5 {chosen[METRIC]:.3f} at step {chosen[TIME]}. To report it:")
        ladder = [o for o in _ladder(config) if o not in overrides]
        typed = " ".join([*(o for o in overrides if not _of_search(o)), *ladder, values])
        console.print(f"  python -m codegrep {typed}", markup=False, highlight=False, soft_wrap=True)
    finally:
        parent.finish(status)


class Trial:
    """What Tune calls with the proposed values; picklable."""

    def __init__(
        self, base: tuple[str, ...], extra: Mapping[str, str], folder: str, working_folder: str, outputs: str
    ) -> None:
        self._base, self._extra = base, dict(extra)
        self._folder, self._working_folder, self._outputs = folder, working_folder, outputs

    def __call__(self, values: Mapping[str, Any]) -> None:
        """Run one trial; reports each rung as it is measured.

        Raises:
            CodegrepError: the run did not end well.
        """
        from ray import tune

        overrides = [*self._base, _STAGES, *(f"{key}={value}" for key, value in values.items())]
        run = run_name(_composed(overrides, self._working_folder))
        ladder = Path(self._outputs, "runs", run, LADDER_FILE)
        log = Path(self._folder, f"{run}.log")
        process = JobProcess()
        arguments = [*overrides, *(f"{key}={value}" for key, value in self._extra.items())]
        code: list[int] = []
        runner = threading.Thread(
            target=lambda: code.append(process.run(arguments, self._working_folder, str(log), {})), daemon=True
        )
        runner.start()
        reported: set[int] = set()
        try:
            while True:
                ended = not runner.is_alive()
                for rung in read(ladder):
                    if rung.step not in reported:
                        reported.add(rung.step)
                        tune.report({METRIC: rung.f05, TIME: rung.step, "run": run, "issues": rung.issues})
                if ended:
                    break
                time.sleep(_POLL_SECONDS)
        finally:
            process.stop(STOP_SECONDS)
        if not code or code[0]:
            raise CodegrepError(f"run {run} ended with {code[0] if code else 'nothing'}: {last_line(log)}")


def _tune(sweep: SearchConfig, request: Request, steps: int, trial: Trial, folder: Path) -> list[dict[str, Any]]:
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # Ctrl-C is this program's to handle
    import optuna
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a trace for each failed trial; the table has the reasons
    nodes, ledger = living_nodes(Ledger()), Ledger()
    room = 0
    while room < sweep.trials and ledger.admit(str(room), request, nodes) is not None:
        room += 1
    if not room:
        raise CodegrepError(f"a trial asks for {request}, which no node here has", "Use a smaller scale")
    # A trial only watches its process; what the process uses, it asks for itself. Tune wants a request all the same: a
    # byte takes no core from it.
    trainable = tune.with_resources(trial.__call__, {"CPU": 0, "memory": 1})
    place = folder / "tune"
    if tune.Tuner.can_restore(str(place)):
        tuner = tune.Tuner.restore(str(place), trainable, resume_errored=True)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space={key: domain(values) for key, values in sweep.space.items()},
            tune_config=tune.TuneConfig(
                metric=METRIC,
                mode="max",
                num_samples=sweep.trials,
                max_concurrent_trials=min(room, sweep.at_once or room),
                search_alg=OptunaSearch(metric=METRIC, mode="max", seed=sweep.seed),
                scheduler=ASHAScheduler(
                    time_attr=TIME, max_t=steps, grace_period=min(sweep.grace, steps), reduction_factor=sweep.reduction
                ),
            ),
            run_config=tune.RunConfig(name="tune", storage_path=str(folder), verbose=1),
        )
    grid: Any = tuner.fit()
    rows = []
    for result in grid:
        metrics = result.metrics or {}
        run = str(metrics.get("run", ""))
        rungs = read(folder.parents[1] / "runs" / run / LADDER_FILE) if run else []
        top: Rung | None = best(rungs) if rungs else None
        values = dict((result.config or {}).items())
        said = _reason(str(result.error)) if result.error else ""
        rows.append(
            {
                **values,
                METRIC: top.f05 if top else None,
                TIME: top.step if top else None,
                "trained": rungs[-1].step if rungs else 0,
                "run": run,
                "error": said,
            }
        )
    # Best first. Tune's own order is another one each time a search is restored.
    rows.sort(key=lambda row: (row[METRIC] is None, -(row[METRIC] or 0.0), row["run"], row["error"]))
    return [{"trial": number, **row} for number, row in enumerate(rows)]


def _reason(error: str) -> str:
    """The last line of a trace, without the class of the error."""
    last = (error.strip().splitlines() or [""])[-1]
    return last.removeprefix(f"{CodegrepError.__module__}.{CodegrepError.__name__}: ")[:300]


def domain(values: Mapping[str, Any]) -> Any:
    """Tune's domain for {low, high, log, integer} or {choices}."""
    from ray import tune

    if "choices" in values:
        return tune.choice(list(values["choices"]))
    kinds: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): tune.uniform,
        (False, True): tune.loguniform,
        (True, False): tune.randint,
        (True, True): tune.lograndint,
    }
    integer, log = bool(values.get("integer")), bool(values.get("log"))
    high = values["high"] + 1 if integer else values["high"]  # Tune leaves the upper end out
    return kinds[integer, log](values["low"], high)


def _composed(overrides: Sequence[str], working_folder: str) -> Config:
    """The configuration of a trial, as its process will compose it."""
    before = Path.cwd()
    if Path(working_folder).is_dir():
        os.chdir(working_folder)
    try:
        return load(compose_overrides(overrides))
    finally:
        os.chdir(before)


def _of_search(override: str) -> bool:
    key = override.partition("=")[0].lstrip("+~")
    return key == "sweep" or key.startswith("sweep.")


def _ladder(config: Config) -> list[str]:
    """What conf/sweep set outside `sweep`, for the processes of trials, which do not see that file."""
    ladder = config.train.ladder
    return [f"train.ladder.every={ladder.every}", f"train.ladder.issues={ladder.issues}"]


def _digest(config: Config, base: Sequence[str]) -> str:
    assert config.sweep is not None
    return fingerprint({"run": run_name(config), "search": config.sweep, "base": sorted(base)})[:8]


def _address() -> str:
    import ray

    return str(ray.get_runtime_context().gcs_address)


def _table(name: str, sweep: SearchConfig, rows: Sequence[Mapping[str, Any]]) -> Table:
    made = Table(title=f"Search {name}", title_justify="left", box=None, pad_edge=False)
    for heading in (
        "trial",
        *(key.rpartition(".")[2] for key in sweep.space),
        "best F0.5",
        "at step",
        "trained to",
        "",
    ):
        made.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for row in rows:
        values = [f"{row[key]:.3g}" if isinstance(row.get(key), float) else str(row.get(key)) for key in sweep.space]
        f05 = "" if row[METRIC] is None else f"{row[METRIC]:.3f}"
        said = "failed, see below" if row["error"] else ""
        made.add_row(str(row["trial"]), *values, f05, str(row[TIME] or ""), str(row["trained"]), said)
    return made
