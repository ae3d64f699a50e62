"""Runs the stages of one experiment, each once, and keeps the MLflow run's state true to what happened."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from codegrep.config import Config
from codegrep.errors import CodegrepError, ConfigError, DiskError
from codegrep.overrides import command
from codegrep.pipeline import run_identity
from codegrep.pipeline.context import Context, Places
from codegrep.pipeline.policies.engines import backend_of
from codegrep.pipeline.policies.policy_files import check_model
from codegrep.pipeline.run_identity import run_name
from codegrep.pipeline.stages import STAGES
from codegrep.runtime.artifacts import ArtifactStore, write_json
from codegrep.runtime.process_lock import alone
from codegrep.runtime.ray_connection import check_variables, connected
from codegrep.runtime.remote_storage import Storage
from codegrep.tracking.environment import snapshot
from codegrep.tracking.environment import tags as environment_tags
from codegrep.tracking.parameters import masked
from codegrep.tracking.run import Tracker
from codegrep.tracking.store import resolve
from codegrep.tracking.sweep import child_tags
from codegrep.tracking.system import SystemMetrics

# A run that has nothing left to do for these never starts Ray.
_ON_RAY = ("label", "warm_start", "train", "evaluate")
_ON_MODEL = ("warm_start", "train", "evaluate")


def run_experiment(config: Config, experiment: str = "") -> None:
    """Run the configured stages; finished ones are skipped, interrupted ones continue.

    Raises:
        CodegrepError: anything a person has to mend, in one line.
        KeyboardInterrupt: after Ctrl-C, once everything is shut down.
    """
    console = Console()
    places = Places(config.outputs_path)
    check_variables()  # before MLflow is asked: its login is one of them
    _check_disk(places.outputs, config.sandbox.min_free_gib)
    if set(_ON_MODEL) & set(config.stages):
        check_model(config.model.path)
        backend_of(config.engine).check(config)
    run_folder = places.runs / run_name(config)
    with alone(run_folder, "run", "Wait for it, or change seed or name."), stoppable():
        try:
            with _recorded(config, experiment, places, run_folder) as tracker, ExitStack() as cluster:
                storage = config.cluster.storage
                store = ArtifactStore(places.artifacts, Storage(storage) if storage else None)
                context = Context(config, experiment, places, run_folder, store, tracker, console)
                run_identity.clear(run_folder)
                try:
                    _run_stages(context, cluster)
                    run_identity.mark(run_folder, config, context.artifacts)
                except KeyboardInterrupt:
                    console.print("\nStopping …")  # taking Ray down takes seconds
                    raise
        except KeyboardInterrupt:
            console.print("Stopped. Nothing is lost: the same command continues where it was:")
            console.print(f"  {command(sys.argv[1:])}", highlight=False, markup=False, soft_wrap=True)
            raise


def _run_stages(context: Context, cluster: ExitStack) -> None:
    """Ray is entered into `cluster` by the first stage that needs it."""
    on_ray = False
    for name, module in _modules().items():
        wanted = name in context.config.stages
        if not wanted and not _upstream_done(context, module):
            continue
        artifact = context.store.open(name, module.inputs(context))
        context.artifacts[name] = artifact
        if not wanted:
            continue
        if artifact.complete and name != "report":
            context.say(f"{name}: there already ({artifact.folder.name})")
            module.already(context, artifact)
            continue
        context.say(name, style="bold")
        started = time.monotonic()
        if name in _ON_RAY and not on_ray:
            cluster.enter_context(connected(context.config.cluster, context.run_folder / "ray.log"))
            on_ray = True
        summary = module.run(context, artifact)
        seconds = time.monotonic() - started
        artifact.finish({**summary, "seconds": round(seconds, 1)})
        context.tracker.metrics({f"seconds/stage_{name}": seconds}, step=0)
        context.tracker.tags({f"artifact.{name}": artifact.fingerprint[:12]})


def _modules() -> dict[str, ModuleType]:
    return {name: importlib.import_module(module) for name, module in STAGES.items()}


def _upstream_done(context: Context, module: ModuleType) -> bool:
    """A stage that was not asked for can still be looked up, if its own inputs can be named."""
    try:
        module.inputs(context)
    except CodegrepError:
        return False
    return True


@contextmanager
def _recorded(config: Config, experiment: str, places: Places, run_folder: Path) -> Iterator[Tracker]:
    """The MLflow run, created or continued; it ends with the status of how the block ended."""
    uri, location = resolve(config.tracking, places.outputs)
    environment = snapshot()
    tags = {
        "codegrep.experiment": experiment or "none",
        "codegrep.data": config.data.name,
        "codegrep.scale": config.scale.name,
        "codegrep.seed": str(config.seed),
        "codegrep.run_folder": run_folder.name,
        **child_tags(config.tracking),
        **environment_tags(environment),
    }
    status, started, failure = "FAILED", time.monotonic(), run_folder / "error.txt"
    tracker = Tracker.start(
        uri=uri,
        experiment=config.tracking.experiment,
        name=f"{config.name}-seed{config.seed}",
        tags=tags,
        run_id_file=run_folder / "mlflow_run_id",
        artifact_location=location,
        system_metrics_seconds=config.tracking.system_metrics_seconds,
        patience=config.tracking.start_patience_seconds,
    )
    try:
        tracker.params(asdict(config))
        write_json(run_folder / "config.json", masked(asdict(config)))
        write_json(run_folder / "environment.json", environment)
        tracker.artifact(run_folder / "config.json", "run")
        tracker.artifact(run_folder / "environment.json", "run")
        with SystemMetrics(tracker, config.tracking.system_metrics_seconds, since=tracker.handle.started):
            yield tracker
        status = "FINISHED"
        if failure.is_file():  # of an earlier attempt; MLflow's tags are overwritten, never deleted
            tracker.tags({"error": ""})
            failure.unlink()
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    except CodegrepError as error:
        failure.write_text(f"{error}\n", encoding="utf-8")
        tracker.tags({"error": str(error)[:500]})
        raise
    finally:
        tracker.metrics({"seconds/run": time.monotonic() - started}, step=0)
        tracker.finish(status)


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP are taken like Ctrl-C: a cancelled job and a closed terminal also shut down in order."""

    def stop(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    # One that is ignored stays so: nohup means it.
    taken = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_disk(outputs: Path, min_free_gib: float) -> None:
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        stats = os.statvfs(outputs)
    except OSError as error:
        raise ConfigError(f"outputs={outputs} cannot be used: {error.strerror}", "Name a folder to write to") from None
    free = stats.f_bavail * stats.f_frsize / 2**30
    if free < min_free_gib:
        raise DiskError(
            f"only {free:.1f} GiB are free under {outputs}, the run wants {min_free_gib:.1f}",
            "Free some space, set outputs= to another disk, or lower sandbox.min_free_gib",
        )
