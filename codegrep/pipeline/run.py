"""Runs the stages of one experiment, each once, and keeps the MLflow run's state true to what happened."""

from __future__ import annotations

import importlib
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from codegrep.config import Config
from codegrep.errors import CodegrepError, ConfigError, DiskError
from codegrep.overrides import typed_command
from codegrep.pipeline import prepared, retrieval, run_identity
from codegrep.pipeline.mined_targets import TrainingSet
from codegrep.pipeline.policies.engines import backend_of
from codegrep.pipeline.policies.policy_files import Policies, check_model
from codegrep.pipeline.prepared import Prepared
from codegrep.pipeline.run_identity import run_name
from codegrep.pipeline.sandboxes import Sandboxes
from codegrep.pipeline.stages import STAGES
from codegrep.runtime.artifacts import Artifact, ArtifactStore, Places, write_json
from codegrep.runtime.process_lock import hold
from codegrep.runtime.progress import Progress
from codegrep.runtime.ray_connection import check_variables, connected
from codegrep.runtime.remote_storage import Storage
from codegrep.tracking.environment import snapshot
from codegrep.tracking.environment import tags as environment_tags
from codegrep.tracking.parameters import masked
from codegrep.tracking.run import Tracker
from codegrep.tracking.store import resolve
from codegrep.tracking.sweep import child_tags
from codegrep.tracking.system import SystemMetrics


class MissingArtifactError(CodegrepError):
    """A stage needs an earlier one that has not run."""


@dataclass
class Run:
    """One run in progress. Each public attribute is what a stage gets whose function has a parameter of that name."""

    config: Config
    places: Places
    run_folder: Path
    store: ArtifactStore
    tracker: Tracker
    progress: Progress
    artifacts: dict[str, Artifact] = field(default_factory=dict)

    def call(self, function: Callable[..., Any], **given: Any) -> Any:
        """Call a stage's function with what its parameters name.

        Args:
            function: of a stage's module.
            given: what only this call has.

        Raises:
            MissingArtifactError: an earlier stage has not run and is not asked for.
        """
        arguments = {}
        for name, parameter in inspect.signature(function).parameters.items():
            try:
                if name in given:
                    arguments[name] = given[name]
                else:
                    arguments[name] = self.need(name) if name in STAGES else getattr(self, name)
            except MissingArtifactError:
                if parameter.default is inspect.Parameter.empty:
                    raise
        return function(**arguments)

    def need(self, stage: str) -> Artifact:
        """Return the complete artifact of an earlier stage.

        Raises:
            MissingArtifactError: the stage has not run and is not asked for.
        """
        artifact = self.artifacts.get(stage)
        if artifact is None or not artifact.complete:
            raise MissingArtifactError(
                f"the artifact of stage {stage} is missing", f"Add {stage} to stages=[…] and run again"
            )
        return artifact

    @cached_property
    def prepared(self) -> Prepared:
        """What the stage prepare left."""
        return prepared.load(self.need("prepare"))

    @cached_property
    def training(self) -> TrainingSet:
        """The training issues, with mined targets as gold where the experiment has labels."""
        labels = self.config.labels
        return TrainingSet(self.prepared, labels, self.need("label") if labels.enabled else None)

    @cached_property
    def policies(self) -> Policies:
        """The models by name."""
        return Policies(self.config, self.places, self.need)

    @cached_property
    def sandboxes(self) -> Sandboxes:
        """The sandbox actors, which start when they are asked for."""
        return Sandboxes(self.config, self.places, self.prepared)


def run_experiment(config: Config, experiment: str = "") -> None:
    """Run the configured stages; finished ones are skipped, interrupted ones continue.

    Args:
        config: of the run.
        experiment: name of the experiment's file, for the record.

    Raises:
        CodegrepError: anything a person has to mend, in one line.
        KeyboardInterrupt: after Ctrl-C, once everything is shut down.
    """
    progress = Progress()
    places = Places(config.outputs_path)
    check_variables()  # before MLflow is asked: its login is one of them
    _check_disk(places.outputs, config.sandbox.min_free_gib)
    if any(STAGES[stage].on_model for stage in config.stages):
        check_model(config.model.path)
        backend_of(config.engine).check(config)
    if "evaluate" in config.stages:
        retrieval.check(config, places)
    run_folder = places.runs / run_name(config)
    with hold(run_folder, "run", "Wait for it, or change seed or name."), stoppable():
        try:
            with _recorded(config, experiment, places, run_folder) as tracker, ExitStack() as cluster:
                storage = config.cluster.storage
                store = ArtifactStore(places.artifacts, Storage(storage) if storage else None)
                run = Run(config, places, run_folder, store, tracker, progress)
                run_identity.clear(run_folder)
                try:
                    _run_stages(run, cluster)
                    run_identity.mark(run_folder, config, run.artifacts)
                except KeyboardInterrupt:
                    progress.say("\nStopping …")  # taking Ray down takes seconds
                    raise
        except KeyboardInterrupt:
            progress.say("Stopped. Nothing is lost: the same command continues where it was:")
            progress.say(f"  {typed_command(sys.argv[1:])}")
            raise


def _run_stages(run: Run, cluster: ExitStack) -> None:
    """Run the stages that are asked for; the first that needs Ray enters it into `cluster`."""
    on_ray = False
    for name, stage in STAGES.items():
        wanted = name in run.config.stages
        module = importlib.import_module(stage.module)
        try:
            inputs = run.call(module.inputs)
        except CodegrepError:
            if wanted:
                raise
            continue  # what is not asked for is looked up where its own inputs can be named
        artifact = run.artifacts[name] = run.store.open(name, inputs)
        if not wanted:
            continue
        if artifact.complete and not stage.always:
            run.progress.say(f"{name}: there already ({artifact.folder.name})")
            if hasattr(module, "already"):
                run.call(module.already, artifact=artifact)
            continue
        run.progress.say(name, style="bold")
        started = time.monotonic()
        if stage.on_ray and not on_ray:
            cluster.enter_context(connected(run.config.cluster, run.run_folder / "ray.log"))
            on_ray = True
        summary = run.call(module.run, artifact=artifact)
        seconds = time.monotonic() - started
        artifact.finish({**summary, "seconds": round(seconds, 1)})
        run.tracker.metrics({f"seconds/stage_{name}": seconds}, step=0)
        run.tracker.tags({f"artifact.{name}": artifact.fingerprint[:12]})


@contextmanager
def _recorded(config: Config, experiment: str, places: Places, run_folder: Path) -> Iterator[Tracker]:
    """Create or continue the MLflow run; it ends with the status of how the block ended."""
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
    """Take SIGTERM and SIGHUP like Ctrl-C: a cancelled job and a closed terminal also shut down in order."""

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
