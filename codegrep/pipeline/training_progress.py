"""A Ray Train job with a progress bar in the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codegrep.pipeline.context import Context
from codegrep.runtime.artifacts import Artifact
from codegrep.training.loops import GRPOJob, WarmStartJob
from codegrep.training.ray_loop import TrainingResult, TrainingSpec, run_training


def trained_with_progress(
    context: Context,
    artifact: Artifact,
    loop: Callable[[dict[str, Any]], None],
    job: WarmStartJob | GRPOJob,
    label: str,
    progress_file: Path,
    said_file: Path | None = None,
) -> TrainingResult:
    """Run a training job in the artifact's folder, or continue it; the bar follows the file that the worker writes.

    Args:
        loop: see training.loops.
        progress_file: holds the number of the last finished step.
        said_file: lines that are added to it while training runs are shown.
    """
    train = context.config.train
    spec = TrainingSpec(
        loop=loop,
        config={"job": job},
        workers=train.workers,
        use_gpu=train.use_gpu,
        cpus_per_worker=train.cpus_per_worker,
        max_failures=train.max_failures,
        keep=train.grpo.keep,
        remote=context.config.cluster.storage,
    )
    total = job.settings.steps if isinstance(job, GRPOJob) else None
    done = threading.Event()
    said = _NewLines(said_file)
    with context.progress(label, total) as advance:

        def follow() -> None:
            while not done.wait(1.0):
                if progress_file.is_file() and (text := progress_file.read_text(encoding="utf-8")).isdigit():
                    advance.to(int(text), note="steps")
                for line in said.read():
                    context.say(f"  {line}")

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            return run_training(spec, artifact.folder, "training")
        finally:
            done.set()
            follower.join()
            for line in said.read():
                context.say(f"  {line}")


class _NewLines:
    """Lines that a file has gained since the start; a last line without its end waits."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._place = path.stat().st_size if path and path.is_file() else 0

    def read(self) -> list[str]:
        if self._path is None or not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            file.seek(self._place)
            whole = file.read().rpartition(b"\n")[0]
        self._place += len(whole) + 1 if whole else 0
        return whole.decode("utf-8", "replace").splitlines()
