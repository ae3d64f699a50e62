"""A Ray Train job with a progress bar in the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codegrep.config import Config
from codegrep.runtime.artifacts import Artifact
from codegrep.runtime.progress import Progress
from codegrep.training.loops import GRPOJob, WarmStartJob
from codegrep.training.ray_loop import TrainingResult, TrainingSpec, run_training


def train_with_progress(
    config: Config,
    artifact: Artifact,
    loop: Callable[[dict[str, Any]], None],
    job: WarmStartJob | GRPOJob,
    progress: Progress,
    label: str,
    steps: int,
    progress_file: Path,
    alarms_file: Path | None = None,
) -> TrainingResult:
    """Run a training job in the artifact's folder, or continue it; the bar follows the file that the worker writes.

    Args:
        config: of the run.
        artifact: of the stage; training is kept in its folder.
        loop: see training.loops.
        job: what the loop is given.
        progress: where the bar is shown.
        label: of the bar.
        steps: optimiser steps that training ends at.
        progress_file: holds the number of the last finished step.
        alarms_file: lines that are added to it while training runs are shown.
    """
    train = config.train
    spec = TrainingSpec(
        loop=loop,
        config={"job": job},
        workers=train.workers,
        use_gpu=train.use_gpu,
        cpus_per_worker=train.cpus_per_worker,
        max_failures=train.max_failures,
        keep=train.grpo.keep,
        remote=config.cluster.storage,
    )
    ended = threading.Event()
    alarms = _NewLines(alarms_file)
    with progress.bar(label, steps, _step(progress_file)) as advance:

        def show() -> None:
            advance.to(_step(progress_file), note="steps")
            for line in alarms.read():
                progress.say(f"  {line}")

        def follow() -> None:
            while not ended.wait(1.0):
                show()

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            return run_training(spec, artifact.folder, "training")
        finally:
            ended.set()
            follower.join()
            show()


def _step(progress_file: Path) -> int:
    text = progress_file.read_text(encoding="utf-8") if progress_file.is_file() else ""
    return int(text) if text.isdigit() else 0


class _NewLines:
    """Reads the lines that a file has gained since the start; a last line without its end waits."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._place = path.stat().st_size if path and path.is_file() else 0

    def read(self) -> list[str]:
        if self._path is None or not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            file.seek(self._place)
            whole, end, _ = file.read().rpartition(b"\n")
        self._place += len(whole) + len(end)
        return whole.decode("utf-8", "replace").split("\n") if end else []
