"""A Ray Train job with a progress bar in the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codegrep.pipeline.artifact import Artifact
from codegrep.pipeline.context import Context
from codegrep.training.loops import GRPOJob, WarmStartJob
from codegrep.training.ray_loop import TrainingResult, TrainingSpec, run_training


def trained_with_progress(
    context: Context,
    artifact: Artifact,
    loop: Callable[[dict[str, Any]], None],
    job: WarmStartJob | GRPOJob,
    label: str,
    progress_file: Path,
) -> TrainingResult:
    """Run a training job in the artifact's folder, or continue it; the bar follows the file that the worker writes.

    Args:
        loop: see training.loops.
        progress_file: holds the number of the last finished step.
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
    with context.progress(label, total) as advance:

        def follow() -> None:
            while not done.wait(1.0):
                if progress_file.is_file() and (text := progress_file.read_text(encoding="utf-8")).isdigit():
                    advance.to(int(text), note="steps")

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            return run_training(spec, artifact.folder, "training")
        finally:
            done.set()
            follower.join()
