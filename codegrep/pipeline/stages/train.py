"""Stage 3: GRPO on the warm-started model, with LoRA or of all weights, under the configured reward design."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from typing import Any

from codegrep.config import Config
from codegrep.engines.models import PolicyFiles
from codegrep.judges.endpoint import PATIENCE
from codegrep.pipeline import checkpoint_selection, mined_targets, needed_gold
from codegrep.pipeline.context import Context
from codegrep.pipeline.policies.engines import EngineHandle, backend_of, training_demand
from codegrep.pipeline.policies.policy_files import policy_files
from codegrep.pipeline.sandboxes import sandbox_for
from codegrep.pipeline.stages import prepare
from codegrep.pipeline.workers import AgentSettings
from codegrep.rewards.governance import JUDGE_FAILED
from codegrep.runtime.artifacts import Artifact
from codegrep.training.signals import load_governance, load_verdicts


def inputs(context: Context) -> dict[str, Any]:
    """What decides the trained policy."""
    config = context.config
    if not config.train.grpo.enabled:
        return {"enabled": False, "start": context.need("warm_start").fingerprint}
    return {
        "start": context.need("warm_start").fingerprint,
        "issues": mined_targets.training_fingerprint(context),
        "grpo": config.train.grpo,
        **trained_weights(config),
        "workers": config.train.workers,
        "reward": config.reward,
        "advantage": config.advantage,
        "agent": config.agent,
        "tools": config.tools,
        "model": config.model,
        "seed": config.seed,
        **_endings(context),
        # Another engine samples the same distribution with other draws; a stale one samples another distribution.
        **({"engine": [config.engine.name, config.engine.sync]} if config.engine.vllm else {}),
        **signals(config),
    }


def trained_weights(config: Config) -> dict[str, Any]:
    """What is trained, as part of a fingerprint."""
    return {"full_parameters": True} if config.train.full_parameters else {"lora": config.train.lora}


def _endings(context: Context) -> dict[str, Any]:
    """What ends training early or chooses its result, where that is on."""
    train = context.config.train
    made: dict[str, Any] = {"early_stop": train.early_stop} if train.early_stop.enabled else {}
    if train.ladder.every:
        made["ladder"] = train.ladder
    return made


def signals(config: Config) -> dict[str, Any]:
    """Governance, turn scores, judge and guard rails, as far as they change what is trained."""
    rules = load_governance(config.governance)
    judge = load_verdicts(config.verdict).judge
    handling = {k: v for k, v in config.governance.handling.items() if judge is not None or k != JUDGE_FAILED}
    found: dict[str, Any] = {}
    if rules.masked_in_group or rules.infrastructure_in_group or any(h != "normal" for h in handling.values()):
        found["governance"] = {k: v for k, v in asdict(config.governance).items() if k != "name"} | {
            "handling": handling
        }
    if judge is not None:
        found["verdict"] = {
            "judge": config.verdict.judge,
            "params": {k: v for k, v in config.verdict.params.items() if k not in PATIENCE},
            "version": str(getattr(judge, "version", "")),
            "failed": rules.handling.get(JUDGE_FAILED, "full_mask"),
        }
    if config.process.function:
        found["process"] = {k: v for k, v in asdict(config.process).items() if k != "name"}
    rails = config.train.guard_rails
    if stopping := {name: asdict(rail) for name, rail in rails.rails.items() if rail.action == "stop"}:
        found["guard_rails"] = {"window": rails.window, "rails": stopping}
    return found


def run(context: Context, artifact: Artifact) -> dict[str, Any]:
    """Train, or continue from the last checkpoint; keep the adapter, or the model where all weights are trained."""
    config = context.config
    if not config.train.grpo.enabled:
        context.say("  off: the warm-started model is the result")
        return {"enabled": False}
    needed_gold.check(config, mined_targets.training_issues(context))
    start = policy_files(context, "warm_start")
    checkpoint_selection.selection(
        config, prepare.load(context.need("prepare"))
    )  # refuses what cannot choose before engines start
    engine = backend_of(config.engine).open(
        config,
        start,
        lora_rank=0 if config.train.full_parameters else config.train.lora.r,
        beside=[training_demand(config)],
    )
    try:
        return _train(context, artifact, start, engine)
    finally:
        engine.end()


def _train(context: Context, artifact: Artifact, start: PolicyFiles, engine: EngineHandle) -> dict[str, Any]:
    # Imported here, since torch and its friends take seconds and a finished stage needs none of them.
    from codegrep.pipeline.collect import OpenPolicyCollector, OpenTrackedAlarms, OpenTrackedLog
    from codegrep.pipeline.training_progress import trained_with_progress
    from codegrep.training.base_model import BaseModel, keep_model
    from codegrep.training.loops import GRPOJob, grpo_loop
    from codegrep.training.lora import ADAPTER_FILE, adapter_sha256
    from codegrep.training.ray_loop import TrainingResult

    config = context.config
    progress_file, said_file = artifact.folder / "step", artifact.folder / "guard_rails.txt"
    settings = AgentSettings(config.agent, config.tools, config.model.context)
    job = GRPOJob(
        base=BaseModel(str(start.model), config.model.dtype),
        lora=None if config.train.full_parameters else config.train.lora,
        settings=config.train.grpo,
        issues=mined_targets.training_issues(context),
        reward=config.reward,
        advantage=config.advantage,
        governance=config.governance,
        process=config.process,
        guard_rails=config.train.guard_rails,
        max_completion_tokens=config.agent.max_completion_tokens,
        seed=config.seed,
        open_collector=OpenPolicyCollector(
            settings=settings,
            engine=engine,
            grpo=config.train.grpo,
            sandbox=sandbox_for(context),
            records=str(artifact.folder / "rollouts"),
            seed=config.seed,
            tracking=context.tracker.handle,
        ),
        open_log=OpenTrackedLog(context.tracker.handle, str(progress_file)),
        open_alarms=OpenTrackedAlarms(context.tracker.handle, str(said_file)),
        gradient_checkpointing=config.train.gradient_checkpointing,
        use_gpu=config.train.use_gpu,
        early_stop=config.train.early_stop,
        sync=config.engine.sync,
        verdict=config.verdict,
        verdict_cache=str(context.places.outputs / "verdict_answers"),
    )

    def train_to(step: int) -> TrainingResult:
        return trained_with_progress(
            context,
            artifact,
            grpo_loop,
            checkpoint_selection.pausing(job, step),
            f"GRPO to {step}",
            progress_file,
            said_file,
        )

    chosen: dict[str, Any] = {}
    if config.train.ladder.every:
        climbed = checkpoint_selection.climb(
            context, artifact, train_to, start.model, prepare.load(context.need("prepare"))
        )
        result = replace(climbed.last, adapter=artifact.folder / climbed.rung.folder)
        chosen = {"best_step": climbed.rung.step, "best_f05": climbed.rung.f05, "rungs": len(climbed.rungs)}
        context.say(f"  best of {len(climbed.rungs)} checkpoints: step {climbed.rung.step}")
    else:
        result = trained_with_progress(context, artifact, grpo_loop, job, "GRPO", progress_file, said_file)
    kept: dict[str, Any] = {}
    if config.train.full_parameters:
        keep_model(result.adapter, start.model, artifact.folder / "model")
    else:
        adapter = artifact.folder / "adapter"
        adapter.mkdir(exist_ok=True)
        for name in (ADAPTER_FILE, "adapter_config.json"):
            shutil.copyfile(result.adapter / name, adapter / name)
        kept["adapter_sha256"] = adapter_sha256(adapter)
    if result.stopped:
        context.say(f"  {result.stopped}")
    return {
        "steps": result.step,
        "max_steps": result.max_steps,
        "used_seconds": result.used_seconds,
        "stopped": result.stopped,
        **kept,
        **chosen,
        **{name.replace("/", "_"): value for name, value in result.metrics.items() if name.startswith("reward/")},
    }


def already(context: Context, artifact: Artifact) -> None:
    """Say in this run's record whose adapter it uses."""
    context.tracker.tags({"train.artifact": artifact.fingerprint[:12]})
