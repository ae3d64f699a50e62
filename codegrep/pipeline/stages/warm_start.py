"""Stage 2: the policy is shown the protocol: weighted SFT on the scripted teacher's trajectories (SPEC 3.3)."""

from __future__ import annotations

import shutil
from typing import Any

from codegrep.pipeline.context import Context
from codegrep.pipeline.policies.policy_files import base_model
from codegrep.pipeline.stages import demonstrations as shown
from codegrep.pipeline.stages.train import trained_weights
from codegrep.rollout.store import read_rollouts
from codegrep.runtime.artifacts import Artifact


def inputs(context: Context) -> dict[str, Any]:
    """What decides the warm-started model."""
    config = context.config
    if not config.train.warm_start.enabled:
        return {"enabled": False, "base": [config.model.path, config.model.revision]}
    return {
        "demonstrations": shown.inputs(context),
        "warm_start": config.train.warm_start,
        **trained_weights(config),
        "model": config.model,
        "seed": _seed(context),
        "workers": config.train.workers,
    }


def run(context: Context, artifact: Artifact) -> dict[str, Any]:
    """Show, train, merge."""
    config = context.config
    if not config.train.warm_start.enabled:
        context.say("  off: GRPO starts from the base model")
        return {"enabled": False}
    # Imported here, since torch and its friends take seconds and a finished stage needs none of them.
    from transformers.utils.logging import disable_progress_bar

    from codegrep.pipeline.collect import OpenTrackedLog
    from codegrep.pipeline.training_progress import trained_with_progress
    from codegrep.training.base_model import BaseModel, keep_model
    from codegrep.training.examples import make_examples
    from codegrep.training.loops import WarmStartJob, warm_start_loop
    from codegrep.training.lora import ADAPTER_FILE, merge_adapter

    disable_progress_bar()
    demonstrations = shown.demonstrations(context)
    _log_demonstrations(context, demonstrations)
    made = make_examples(read_rollouts(demonstrations.folder / "rollouts"), config.train.warm_start.max_tokens)
    left_out = ", ".join(f"{n} {reason}" for reason, n in made.left_out.items()) or "none"
    context.say(f"  {len(made.examples)} trajectories of the scripted teacher; left out: {left_out}")
    base = base_model(context)
    progress_file = artifact.folder / "step"
    job = WarmStartJob(
        base=BaseModel(str(base), config.model.dtype),
        lora=None if config.train.full_parameters else config.train.lora,
        settings=config.train.warm_start,
        examples=made.examples,
        seed=_seed(context),
        open_log=OpenTrackedLog(context.tracker.handle, str(progress_file)),
        gradient_checkpointing=config.train.gradient_checkpointing,
        use_gpu=config.train.use_gpu,
    )
    result = trained_with_progress(context, artifact, warm_start_loop, job, "warm start", progress_file)
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
        context.say(f"  {result.stopped}")
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


def _seed(context: Context) -> int:
    own = context.config.train.warm_start.seed
    return context.config.seed if own is None else own


def already(context: Context, artifact: Artifact) -> None:
    """Say in this run's record whose warm start it uses."""
    context.tracker.tags({"warm_start.artifact": artifact.fingerprint[:12]})
    if context.config.train.warm_start.enabled:
        _log_demonstrations(context, context.store.open("demonstrations", shown.inputs(context)))


def _log_demonstrations(context: Context, artifact: Artifact) -> None:
    if not artifact.complete:
        return
    summary = artifact.summary
    context.tracker.metrics(
        {"data/demonstrations": float(summary["rollouts"]), "data/demonstrations_with_gold": summary["found_gold"]},
        step=0,
    )
    context.tracker.tags({"demonstrations.teacher": "scripted", "demonstrations": artifact.fingerprint[:12]})
