"""Stage train: GRPO on the warm-started model, with LoRA or of all weights, under the configured reward design."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from codegrep.config import Config
from codegrep.engines.models import PolicyFiles
from codegrep.judges.endpoint import PATIENCE
from codegrep.pipeline import needed_gold
from codegrep.pipeline.checkpoint_selection import CheckpointSelection, selection_issues
from codegrep.pipeline.mined_targets import TrainingSet
from codegrep.pipeline.policies.engines import EngineHandle, backend_of
from codegrep.pipeline.policies.policy_files import Policies
from codegrep.pipeline.prepared import Prepared
from codegrep.pipeline.sandboxes import Sandboxes, tools_inputs
from codegrep.pipeline.workers import AgentSettings
from codegrep.rewards.governance import JUDGE_FAILED
from codegrep.runtime.artifacts import Artifact, Places
from codegrep.runtime.progress import Progress
from codegrep.runtime.resources import training_workers
from codegrep.tracking.run import Tracker
from codegrep.training.signals import load_answer_judge, load_governance


def inputs(config: Config, warm_start: Artifact, training: TrainingSet) -> dict[str, Any]:
    """Return what decides the trained policy."""
    train = config.train
    if not train.grpo.enabled:
        return {"enabled": False, "start": warm_start.fingerprint}
    deciding: dict[str, Any] = {
        "start": warm_start.fingerprint,
        "issues": training.fingerprint,
        "grpo": train.grpo,
        **trained_weights(config),
        "workers": train.workers,
        "reward": config.reward,
        "advantage": config.advantage,
        "agent": config.agent,
        **tools_inputs(config.tools),
        "model": config.model,
        "seed": config.seed,
        **signals(config),
    }
    if train.early_stop.enabled:
        deciding["early_stop"] = train.early_stop
    if train.checkpoint_selection.every:
        deciding["checkpoint_selection"] = train.checkpoint_selection
    if config.engine.vllm:
        # Another engine samples the same distribution with other draws; a stale one samples another distribution.
        deciding["engine"] = [config.engine.name, config.engine.sync]
    return deciding


def trained_weights(config: Config) -> dict[str, Any]:
    """Return what is trained, as part of a fingerprint."""
    return {"full_parameters": True} if config.train.full_parameters else {"lora": config.train.lora}


def signals(config: Config) -> dict[str, Any]:
    """Return governance, turn scores, judge and guard rails, as far as they change what is trained."""
    rules = load_governance(config.governance)
    judge = load_answer_judge(config.answer_judge).judge
    handling = {k: v for k, v in config.governance.handling.items() if judge is not None or k != JUDGE_FAILED}
    deciding: dict[str, Any] = {}
    if rules.masked_in_group or rules.infrastructure_in_group or any(h != "normal" for h in handling.values()):
        deciding["governance"] = {k: v for k, v in asdict(config.governance).items() if k != "name"} | {
            "handling": handling
        }
    if judge is not None:
        deciding["answer_judge"] = {
            "judge": config.answer_judge.judge,
            "params": {k: v for k, v in config.answer_judge.params.items() if k not in PATIENCE},
            "version": str(getattr(judge, "version", "")),
            "failed": rules.handling.get(JUDGE_FAILED, "full_mask"),
        }
    if config.turn_scores.function:
        deciding["turn_scores"] = {k: v for k, v in asdict(config.turn_scores).items() if k != "name"}
    rails = config.train.guard_rails
    if stopping := {name: asdict(rail) for name, rail in rails.rails.items() if rail.action == "stop"}:
        deciding["guard_rails"] = {"window": rails.window, "rails": stopping}
    return deciding


def run(
    config: Config,
    prepared: Prepared,
    training: TrainingSet,
    policies: Policies,
    places: Places,
    run_folder: Path,
    artifact: Artifact,
    tracker: Tracker,
    progress: Progress,
    sandboxes: Sandboxes,
) -> dict[str, Any]:
    """Train, or continue from the last checkpoint; keep the adapter, or the model where all weights are trained."""
    if not config.train.grpo.enabled:
        progress.say("  off: the warm-started model is the result")
        return {"enabled": False}
    needed_gold.check(config, training.issues)
    start = policies.files("warm_start")
    selection_issues(config, prepared)  # refuses what cannot choose before engines start
    engine = backend_of(config.engine).open(
        config,
        start,
        lora_rank=0 if config.train.full_parameters else config.train.lora.r,
        beside=[training_workers(config)],
    )
    selection = CheckpointSelection(config, prepared, start.model, artifact, run_folder, tracker, progress, sandboxes)
    try:
        return _train(config, training, start, engine, selection, places, artifact, tracker, progress, sandboxes)
    finally:
        engine.end()


def already(artifact: Artifact, tracker: Tracker) -> None:
    """Log in this run's record whose adapter it uses."""
    tracker.tags({"train.artifact": artifact.fingerprint[:12]})


def _train(
    config: Config,
    training: TrainingSet,
    start: PolicyFiles,
    engine: EngineHandle,
    selection: CheckpointSelection,
    places: Places,
    artifact: Artifact,
    tracker: Tracker,
    progress: Progress,
    sandboxes: Sandboxes,
) -> dict[str, Any]:
    # Imported here, since torch and its friends take seconds and a finished stage needs none of them.
    from codegrep.engines.adapter import ADAPTER_FILE
    from codegrep.pipeline.collect import OpenPolicyCollector, OpenTrackedAlarms, OpenTrackedLog
    from codegrep.pipeline.training_progress import train_with_progress
    from codegrep.training.base_model import BaseModel, keep_model
    from codegrep.training.loops import GRPOJob, grpo_loop
    from codegrep.training.lora import adapter_sha256
    from codegrep.training.ray_loop import TrainingResult

    step_file, alarms_file = artifact.folder / "step", artifact.folder / "guard_rails.txt"
    job = GRPOJob(
        base=BaseModel(str(start.model), config.model.dtype),
        lora=None if config.train.full_parameters else config.train.lora,
        settings=config.train.grpo,
        issues=training.issues,
        reward=config.reward,
        advantage=config.advantage,
        governance=config.governance,
        turn_scores=config.turn_scores,
        guard_rails=config.train.guard_rails,
        max_completion_tokens=config.agent.max_completion_tokens,
        seed=config.seed,
        open_collector=OpenPolicyCollector(
            settings=AgentSettings(config.agent, config.tools, config.model.context),
            engine=engine,
            grpo=config.train.grpo,
            sandbox=sandboxes.start(),
            records=str(artifact.folder / "rollouts"),
            seed=config.seed,
            tracking=tracker.handle,
        ),
        open_log=OpenTrackedLog(tracker.handle, str(step_file)),
        open_alarms=OpenTrackedAlarms(tracker.handle, str(alarms_file)),
        gradient_checkpointing=config.train.gradient_checkpointing,
        use_gpu=config.train.use_gpu,
        early_stop=config.train.early_stop,
        sync=config.engine.sync,
        answer_judge=config.answer_judge,
        judge_cache=str(places.outputs / "answer_judgements"),
    )

    def train_to(step: int) -> TrainingResult:
        part = replace(job, pause_at=0 if step == config.train.grpo.steps else step)
        return train_with_progress(config, artifact, grpo_loop, part, progress, "GRPO", step, step_file, alarms_file)

    summary: dict[str, Any] = {}
    if config.train.checkpoint_selection.every:
        result, checkpoint, measured = selection.train(train_to)
        result = replace(result, adapter=artifact.folder / checkpoint.folder)
        summary = {"best_step": checkpoint.step, "best_f05": checkpoint.f05, "checkpoints": len(measured)}
        progress.say(f"  best of {len(measured)} checkpoints: step {checkpoint.step}")
    else:
        result = train_to(config.train.grpo.steps)
    if config.train.full_parameters:
        keep_model(result.adapter, start.model, artifact.folder / "model")
    else:
        adapter = artifact.folder / "adapter"
        adapter.mkdir(exist_ok=True)
        for name in (ADAPTER_FILE, "adapter_config.json"):
            shutil.copyfile(result.adapter / name, adapter / name)
        summary["adapter_sha256"] = adapter_sha256(adapter)
    if result.stopped:
        progress.say(f"  {result.stopped}")
    return {
        "steps": result.step,
        "max_steps": result.max_steps,
        "used_seconds": result.used_seconds,
        "stopped": result.stopped,
        **summary,
        **{name.replace("/", "_"): value for name, value in result.metrics.items() if name.startswith("reward/")},
    }
