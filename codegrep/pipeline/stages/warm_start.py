"""Stage warm_start: weighted SFT on the scripted teacher's trajectories shows the policy the protocol."""

from __future__ import annotations

import shutil
from typing import Any

from codegrep.config import Config
from codegrep.pipeline.mined_targets import TrainingSet
from codegrep.pipeline.policies.policy_files import base_model
from codegrep.pipeline.sandboxes import Sandboxes
from codegrep.pipeline.stages import demonstrations as shown
from codegrep.pipeline.stages.train import trained_weights
from codegrep.rollout.store import read_rollouts
from codegrep.runtime.artifacts import Artifact, ArtifactStore
from codegrep.runtime.progress import Progress
from codegrep.tracking.run import Tracker


def inputs(config: Config, training: TrainingSet) -> dict[str, Any]:
    """Return what decides the warm-started model."""
    if not config.train.warm_start.enabled:
        return {"enabled": False, "base": [config.model.path, config.model.revision]}
    return {
        "demonstrations": shown.inputs(config, training),
        "warm_start": config.train.warm_start,
        **trained_weights(config),
        "model": config.model,
        "seed": _seed(config),
        "workers": config.train.workers,
    }


def run(
    config: Config,
    training: TrainingSet,
    artifact: Artifact,
    store: ArtifactStore,
    tracker: Tracker,
    progress: Progress,
    sandboxes: Sandboxes,
) -> dict[str, Any]:
    """Let the teacher demonstrate, train on it, merge the adapter."""
    settings = config.train.warm_start
    if not settings.enabled:
        progress.say("  off: GRPO starts from the base model")
        return {"enabled": False}
    # Imported here, since torch and its friends take seconds and a finished stage needs none of them.
    from transformers.utils.logging import disable_progress_bar

    from codegrep.engines.adapter import ADAPTER_FILE
    from codegrep.pipeline.collect import OpenTrackedLog
    from codegrep.pipeline.training_progress import train_with_progress
    from codegrep.training.base_model import BaseModel, keep_model
    from codegrep.training.examples import make_examples, plan_steps
    from codegrep.training.loops import WarmStartJob, warm_start_loop
    from codegrep.training.lora import merge_adapter

    disable_progress_bar()
    demonstrations = shown.demonstrations(config, training, store, progress, sandboxes)
    _log_demonstrations(tracker, demonstrations)
    made = make_examples(read_rollouts(demonstrations.folder / "rollouts"), settings.max_tokens)
    left_out = ", ".join(f"{n} {reason}" for reason, n in made.left_out.items()) or "none"
    progress.say(f"  {len(made.examples)} trajectories of the scripted teacher; left out: {left_out}")
    base = base_model(config.model)
    progress_file = artifact.folder / "step"
    job = WarmStartJob(
        base=BaseModel(str(base), config.model.dtype),
        lora=None if config.train.full_parameters else config.train.lora,
        settings=settings,
        examples=made.examples,
        seed=_seed(config),
        open_log=OpenTrackedLog(tracker.handle, str(progress_file)),
        gradient_checkpointing=config.train.gradient_checkpointing,
        use_gpu=config.train.use_gpu,
    )
    lengths = [len(example) for example in made.examples]
    steps = plan_steps(lengths, settings.tokens_per_step, settings.epochs, _seed(config), config.train.workers)
    result = train_with_progress(
        config, artifact, warm_start_loop, job, progress, "warm start", len(steps), progress_file
    )
    model = artifact.folder / "model"
    partial = artifact.folder / "model.partial"
    shutil.rmtree(partial, ignore_errors=True)
    gaps: dict[str, float] = {}
    if config.train.full_parameters:
        keep_model(result.adapter, base, partial)
    else:
        # The merged model is large; what travels with a trained policy is the adapter that it was merged from.
        kept = artifact.folder / "adapter"
        kept.mkdir(exist_ok=True)
        for name in (ADAPTER_FILE, "adapter_config.json"):
            shutil.copyfile(result.adapter / name, kept / name)
        merged = merge_adapter(str(base), result.adapter, partial, config.model.dtype)
        gaps = {"merge_logit_gap": merged.max_logit_gap, "merge_rounding_gap": merged.rounding_gap}
    shutil.rmtree(model, ignore_errors=True)
    partial.rename(model)
    if result.stopped:
        progress.say(f"  {result.stopped}")
    return {
        "examples": len(made.examples),
        "left_out": dict(made.left_out),
        "steps": result.step,
        "max_steps": result.max_steps,
        "used_seconds": result.used_seconds,
        "stopped": result.stopped,
        "loss": result.metrics.get("warm_start/loss"),
        **gaps,
        "teacher": "scripted",
    }


def already(config: Config, training: TrainingSet, artifact: Artifact, store: ArtifactStore, tracker: Tracker) -> None:
    """Log in this run's record whose warm start it uses."""
    tracker.tags({"warm_start.artifact": artifact.fingerprint[:12]})
    if config.train.warm_start.enabled:
        _log_demonstrations(tracker, store.open("demonstrations", shown.inputs(config, training)))


def _seed(config: Config) -> int:
    own = config.train.warm_start.seed
    return config.seed if own is None else own


def _log_demonstrations(tracker: Tracker, artifact: Artifact) -> None:
    if not artifact.complete:
        return
    summary = artifact.summary
    tracker.metrics(
        {"data/demonstrations": float(summary["rollouts"]), "data/demonstrations_with_gold": summary["found_gold"]},
        step=0,
    )
    tracker.tags({"demonstrations.teacher": "scripted", "demonstrations": artifact.fingerprint[:12]})
