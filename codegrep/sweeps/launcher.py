"""`python -m codegrep -m +experiment=v1,v2,v3 seed=0,1,2`: Hydra's multirun as a queue of jobs on Ray.

- A job starts when the peak of what it will ask for (trainer, engines, sandboxes) fits beside those that run
  (runtime.resources); the others queue. On a laptop that is one at a time.
- Each job is a process of its own with an exit code, a log file and the very command of a single run. Its failure, a
  kill, or the loss of its node is its outcome; the others go on.
- What became of each job is on disk at every moment. The same command again runs missing and failed jobs only, and
  those continue from their last checkpoint.

The public hydra-ray-launcher (1.2.2) starts every job at once as a task of one CPU, whatever the job itself asks for,
gathers all results in one call, and keeps no record to go on from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus, filter_overrides, setup_globals
from hydra.types import HydraContext
from omegaconf import DictConfig, flag_override

from codegrep.compose import load
from codegrep.config import Config
from codegrep.errors import CodegrepError, ConfigError
from codegrep.hydra_settings import (
    choices_in_files,
    passed_on,
    refuse_ignored_choices,
    refuse_ignored_settings,
)
from codegrep.overrides import outputs_option, override, typed_command
from codegrep.pipeline.run import stoppable
from codegrep.pipeline.run_identity import is_completed, run_name
from codegrep.runtime.artifacts import Places
from codegrep.runtime.process_lock import hold
from codegrep.runtime.progress import Progress
from codegrep.runtime.ray_connection import address, connected
from codegrep.runtime.resources import request_of
from codegrep.sweeps import job_results
from codegrep.sweeps.job_results import JobResult
from codegrep.sweeps.sweep import Job, LauncherSettings, Queue
from codegrep.tracking.run import Tracker, TrackingHandle
from codegrep.tracking.store import resolve
from codegrep.tracking.sweep import child_tags, job_settings, open_sweep

_STATUS = {True: "FINISHED", False: "FAILED"}


class SweepError(CodegrepError):
    """Some jobs of a sweep did not complete."""


@dataclass(frozen=True)
class _Composed:
    """A job as Hydra composed it; config is None where it was refused."""

    number: int
    overrides: tuple[str, ...]
    arguments: tuple[str, ...]
    config: Config | None
    refused: str = ""


def launch(
    master: DictConfig,
    context: HydraContext,
    settings: LauncherSettings,
    job_overrides: Sequence[Sequence[str]],
    first: int,
) -> Sequence[JobReturn]:
    """Run the jobs; a table of outcomes at the end.

    Args:
        master: the configuration of the sweep as a whole, without what its jobs differ in.
        context: Hydra's.
        settings: of the launcher.
        job_overrides: of each job.
        first: number of the first.

    Raises:
        SweepError: after the table, if not every job completed.
        ConfigError: a launcher is set where Hydra ignores it, or no job can be run.
        KeyboardInterrupt: after Ctrl-C, once the running jobs have ended and are recorded.
    """
    setup_globals()
    composed = [_compose(master, context, list(o), first + i) for i, o in enumerate(job_overrides)]
    configs = [job.config for job in composed if job.config is not None]
    if not configs:
        raise ConfigError(composed[0].refused, "No job of the sweep can be run")
    if len({(c.outputs, repr(c.cluster), c.tracking.uri, c.tracking.experiment) for c in configs}) > 1:
        raise ConfigError(
            "jobs of one sweep differ in outputs, cluster or tracking", "Give those the same value in all jobs"
        )
    first_of = repeated(composed)
    once = [job for job in composed if job.number not in first_of]
    sweep_id = _sweep_id(settings.name, once)
    folder = Places(configs[0].outputs_path).sweeps / sweep_id
    progress = Progress()
    for number, same in first_of.items():
        progress.say(f"job {number} {' '.join(composed[number - first].overrides)} is job {same} again: it runs once")
    with hold(folder, "sweep"), stoppable():
        returned = _launch(once, configs[0], settings, sweep_id, folder, progress)
    return [returned[first_of.get(job.number, job.number)] for job in composed]


def repeated(composed: Sequence[_Composed]) -> dict[int, int]:
    """Return the jobs that are another one's run and stages over again, each with that other one."""
    seen: dict[tuple[str, ...], int] = {}
    first_of = {}
    for job in composed:
        if job.config is None:
            continue
        key = (run_name(job.config), *job.config.stages)
        if key in seen:
            first_of[job.number] = seen[key]
        else:
            seen[key] = job.number
    return first_of


def _launch(
    composed: Sequence[_Composed],
    shared: Config,
    settings: LauncherSettings,
    sweep_id: str,
    folder: Path,
    progress: Progress,
) -> dict[int, JobReturn]:
    parent = open_sweep(shared.tracking, shared.outputs_path, sweep_id, name=settings.name or sweep_id)
    known = _known(composed, settings, parent, sweep_id)
    todo = [job for job in composed if job.number not in known]
    progress.say(f"Sweep {sweep_id}: {len(composed)} jobs, {len(todo)} to run. Logs and outcomes: {folder}")
    result, status = list(known.values()), "FAILED"
    queue = Queue(folder, Places(shared.outputs_path).runs, settings, progress)
    try:
        if todo:
            with connected(shared.cluster, folder / "ray.log"):
                extra = {**job_settings(sweep_id, parent.run_id), "cluster.address": address()}
                jobs = [_job(job, settings, extra) for job in todo]
                result = queue.run(jobs, list(known.values()))
        else:
            job_results.write(folder, result)
        status = _STATUS[all(o.status == job_results.COMPLETED for o in result)]
    except KeyboardInterrupt:
        result, status = queue.outcomes or result, "KILLED"
        raise
    finally:
        progress.show(job_results.table(sweep_id, result))
        for line in job_results.reasons(result):
            progress.say(line)
        if sum(o.status == job_results.COMPLETED for o in result) > 1:
            command = typed_command(["compare", sweep_id, *outputs_option(shared.outputs)])
            progress.say(f"One page about them: {command}")
        with suppress(CodegrepError):
            parent.table([o.row() for o in result], "sweep/job_results.json")
            parent.finish(status)
    left = [o for o in result if o.status != job_results.COMPLETED]
    if left:
        kinds = ", ".join(f"{sum(o.status == s for o in left)} {s}" for s in dict.fromkeys(o.status for o in left))
        refused = all(o.status == job_results.REFUSED for o in left)
        fix = "Mend their configuration" if refused else "The same command runs those"
        raise SweepError(f"{len(left)} of {len(result)} jobs did not complete ({kinds})", fix)
    return {o.job: _returned(o) for o in result}


def _compose(master: DictConfig, context: HydraContext, overrides: list[str], number: int) -> _Composed:
    composed = context.config_loader.load_sweep_config(master, overrides)
    choices = composed.hydra.runtime.choices
    in_files = choices_in_files(context.config_loader.repository, choices)  # type: ignore[attr-defined]
    refuse_ignored_choices(master.hydra.runtime.choices, {**choices, **in_files})
    refuse_ignored_settings(master.hydra, composed.hydra)
    own = tuple(filter_overrides(overrides))
    hydra = passed_on(master.hydra)
    arguments = (*hydra.options, *hydra.overrides, *own)
    task = deepcopy(composed)
    with flag_override(task, ["struct", "readonly"], False):
        del task["hydra"]
    try:
        return _Composed(number, _apart(own, master), arguments, load(task))
    except CodegrepError as error:
        return _Composed(number, _apart(own, master), arguments, None, str(error))


def _known(
    composed: Sequence[_Composed], settings: LauncherSettings, parent: Tracker, sweep_id: str
) -> dict[int, JobResult]:
    """Return the jobs that need no start: refused ones, and those whose run is complete."""
    known = {}
    for job in composed:
        if job.config is None:
            known[job.number] = JobResult(job.number, job.overrides, "", job_results.REFUSED, reason=job.refused)
        elif not settings.redo and is_completed(job.config):
            run = run_name(job.config)
            folder = Places(job.config.outputs_path).runs / run
            f05 = job_results.held_out_f05(folder)
            known[job.number] = JobResult(job.number, job.overrides, run, job_results.COMPLETED, f05=f05)
            _adopt(job.config, folder, sweep_id, parent.run_id)
    return known


def _adopt(config: Config, folder: Path, sweep_id: str, parent_run: str) -> None:
    """Make a run that was complete before a member of this sweep too."""
    try:
        run_id = (folder / "mlflow_run_id").read_text(encoding="utf-8").strip()
    except OSError:
        return
    tracking = deepcopy(config.tracking)
    tracking.sweep, tracking.parent_run = sweep_id, parent_run
    uri, _ = resolve(tracking, config.outputs_path)
    TrackingHandle(uri, run_id, str(folder)).open().tags(child_tags(tracking))


def _job(job: _Composed, settings: LauncherSettings, extra: Mapping[str, str]) -> Job:
    assert job.config is not None
    arguments = (*job.arguments, *(override(key, value) for key, value in extra.items()))
    request = request_of(job.config, settings.share_nodes)
    return Job(job.number, job.overrides, arguments, run_name(job.config), request)


def _apart(overrides: Sequence[str], master: DictConfig) -> tuple[str, ...]:
    """Return the overrides of a job that are not those of every job."""
    common = {str(override) for override in master.hydra.overrides.task}
    return tuple(o for o in overrides if o not in common) or tuple(overrides)


def _sweep_id(name: str, composed: Sequence[_Composed]) -> str:
    """Name a sweep so that the same jobs have the same id, in whatever order they are given."""
    keys = sorted(run_name(job.config) if job.config else " ".join(job.overrides) for job in composed)
    stages = sorted({stage for job in composed if job.config for stage in job.config.stages})
    digest = hashlib.sha256("\n".join([*keys, *stages]).encode()).hexdigest()[:8]
    label = name or "-".join(dict.fromkeys(job.config.name for job in composed if job.config))
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', label).strip('_-')[:48] or 'sweep'}-{digest}"


def _returned(outcome: JobResult) -> JobReturn:
    returned = JobReturn(overrides=list(outcome.overrides), status=JobStatus.COMPLETED)
    returned.return_value = outcome.f05
    return returned
