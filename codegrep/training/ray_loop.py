"""Run a training loop as a Ray Train job that survives killed workers and killed drivers.

`run_training` starts the job, or continues the one of the same name in the same storage folder. The loops in
`codegrep.training.loops` use the worker's side of this module.
"""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.exceptions import RayError
from ray.train.torch import TorchTrainer

from codegrep import errors
from codegrep.errors import CodegrepError, InfrastructureError
from codegrep.runtime.remote_storage import Storage
from codegrep.training.callbacks import read_progress

_ERROR_FILE = "codegrep_error.json"
_TRACE_FILE = "traceback.txt"
_ABORT_SECONDS = 10.0
# By default glibc returns every large tensor to the system when it is freed; the page faults of new ones are about a
# fifth of a training step on a CPU. With these settings the worker keeps its peak memory until it ends.
_MALLOC = ":".join(
    (
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.mmap_max=0",
        "glibc.malloc.trim_threshold=4294967296",
        "glibc.malloc.top_pad=67108864",
    )
)


@dataclass(frozen=True)
class TrainingSpec:
    """One training job; picklable.

    Attributes:
        loop: importable function, called with `config` in every worker.
        config: plain data and picklable functions.
        workers: Ray Train workers.
        use_gpu: give each worker a GPU.
        cpus_per_worker: may be a fraction.
        max_failures: restarts after a lost worker; -1 is no limit.
        keep: checkpoints kept.
        remote: fsspec address for checkpoints (cluster.storage); "" keeps them in the job's folder.
    """

    loop: Callable[[dict[str, Any]], None]
    config: Mapping[str, Any] = field(repr=False)
    workers: int = 1
    use_gpu: bool = False
    cpus_per_worker: float = 1.0
    max_failures: int = 3
    keep: int = 2
    remote: str = ""


@dataclass(frozen=True)
class TrainingResult:
    """Where training ended.

    Attributes:
        adapter: the last checkpoint's folder, with the adapter as PEFT saves it.
        step: optimiser steps done.
        max_steps: optimiser steps planned.
        used_seconds: wall time of training over all starts.
        metrics: of the last step, under the project's names.
        stopped: why it ended early, else "".
    """

    adapter: Path
    step: int
    max_steps: int
    used_seconds: float
    metrics: dict[str, float]
    stopped: str


def run_training(spec: TrainingSpec, storage: Path, name: str) -> TrainingResult:
    """Run `spec` to its end, from the last checkpoint of `storage / name` if there is one.

    Ray must be initialised. After Ctrl-C (KeyboardInterrupt, workers stop within seconds) or kill -9 of the driver, the
    same call continues from the last checkpoint.

    Raises:
        CodegrepError: what a worker raised.
        InfrastructureError: workers were lost more often than max_failures, or no checkpoint was reported.
    """
    folder = storage.absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in (_ERROR_FILE, _TRACE_FILE):
        (folder / old).unlink(missing_ok=True)
    cpus = {"CPU": spec.cpus_per_worker}
    place, filesystem = str(storage.absolute()), None
    if spec.remote:
        place, filesystem = Storage(spec.remote).checkpoints(storage.name)
    worker_env = {"env_vars": {"GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", _MALLOC)}}
    trainer = _Job(
        _in_worker,
        train_loop_config={"loop": spec.loop, "config": dict(spec.config), "folder": str(folder)},
        scaling_config=ray.train.ScalingConfig(
            num_workers=spec.workers,
            use_gpu=spec.use_gpu,
            resources_per_worker=cpus | {"GPU": 1.0} if spec.use_gpu else cpus,
        ),
        run_config=ray.train.RunConfig(
            name=name,
            storage_path=place,
            storage_filesystem=filesystem,
            failure_config=ray.train.FailureConfig(max_failures=spec.max_failures),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=spec.keep),
            worker_runtime_env=worker_env,  # type: ignore[call-arg]  # the stubs show the old RunConfig
        ),
    )
    try:
        result = trainer.fit()
    except KeyboardInterrupt:
        trainer.abort()
        raise
    except (ray.train.TrainingFailedError, RayError) as error:
        _raise_recorded(folder)
        trace = folder / _TRACE_FILE
        where = f"Its trace is in {trace}. " if trace.is_file() else ""
        raise InfrastructureError(
            f"training '{name}' was lost: {_first_line(error)}",
            f"{where}The same command continues from the last checkpoint",
        ) from error
    _raise_recorded(folder)
    if result.checkpoint is None:
        raise InfrastructureError(f"training '{name}' left no checkpoint in {folder}")
    adapter = Path(result.checkpoint.path)
    if spec.remote:
        adapter = Path(result.checkpoint.to_directory(str(folder / "last_checkpoint")))
    progress = read_progress(adapter)
    return TrainingResult(
        adapter=adapter,
        step=int(progress.get("step", 0)),
        max_steps=int(progress.get("max_steps", 0)),
        used_seconds=float(progress.get("used_seconds", 0.0)),
        metrics={k: float(v) for k, v in (result.metrics or {}).items() if isinstance(v, int | float)},
        stopped=str(progress.get("stopped", "")),
    )


class _Job(TorchTrainer):
    """TorchTrainer without its SIGINT handler, which ends the process by sys.exit(0) and outlives the job."""

    _controller: Any = None

    def _register_sigint_handler(self, controller: Any) -> None:
        self._controller = controller

    def abort(self) -> None:
        """Stop controller and workers."""
        if self._controller is None:
            return
        with suppress(RayError):  # the controller ends without an answer
            ray.get(self._controller.abort.remote(), timeout=_ABORT_SECONDS)
        with suppress(RayError, ValueError):
            ray.kill(self._controller)


def _in_worker(config: dict[str, Any]) -> None:
    # Ray gives a worker one OpenMP thread for each promised CPU. Engine and sandbox wait while it computes, so the
    # workers of a node share all its cores.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ray.train.get_context().get_local_world_size()))
    try:
        config["loop"](config["config"])
    except CodegrepError as error:
        record = {"kind": type(error).__name__, "what": error.what, "fix": error.fix}
        if ray.train.get_context().get_world_rank() == 0:
            (Path(config["folder"]) / _ERROR_FILE).write_text(json.dumps(record), encoding="utf-8")
        # A restart does not mend wrong configuration or data, so this worker ends in order; with several workers only
        # raising ends the job, for the others wait for this one.
        if isinstance(error, InfrastructureError) or ray.train.get_context().get_world_size() > 1:
            raise
    except Exception:  # a bug, or no memory left: Ray tries again, the trace is kept
        (Path(config["folder"]) / _TRACE_FILE).write_text(traceback.format_exc(), encoding="utf-8")
        raise


def _raise_recorded(folder: Path) -> None:
    path = folder / _ERROR_FILE
    if not path.is_file():
        return
    record = json.loads(path.read_text(encoding="utf-8"))
    kind = getattr(errors, record["kind"], CodegrepError)
    raise kind(record["what"], record["fix"])


@contextmanager
def resume_folder() -> Iterator[Path | None]:
    """In a worker, yield the checkpoint to continue from as a local folder, or None at a first start."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        yield None
        return
    with checkpoint.as_directory() as folder:
        yield Path(folder)


@contextmanager
def work_folder() -> Iterator[Path]:
    """In a worker, yield a temporary folder for checkpoints that are not reported yet."""
    with tempfile.TemporaryDirectory(prefix="codegrep-train-") as folder:
        yield Path(folder)


def report_checkpoint(step: int, folder: Path, metrics: Mapping[str, float]) -> None:
    """In a worker, report a checkpoint. Every rank calls it equally often; only rank 0 uploads the folder."""
    first = ray.train.get_context().get_world_rank() == 0
    checkpoint = ray.train.Checkpoint.from_directory(str(folder)) if first else None
    ray.train.report({"step": step, **metrics}, checkpoint=checkpoint)


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:300]
