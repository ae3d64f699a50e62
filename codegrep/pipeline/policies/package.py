"""The policy that a run has trained, packed with its card and logged as an MLflow model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from codegrep.errors import CodegrepError
from codegrep.overrides import command
from codegrep.pipeline.context import Context
from codegrep.pipeline.policies.policy_files import base_model
from codegrep.tracking.environment import snapshot
from codegrep.tracking.model_card import ModelCard, markdown
from codegrep.tracking.policy_package import BaseReference, model_checksum, write_package
from codegrep.tracking.rows import EvaluationRow

# Whose held-out F0.5 is the policy's: the first that was measured.
_SUBJECTS = ("trained", "warm_start")


def log_policy(context: Context, lines: Sequence[EvaluationRow]) -> None:
    """Pack the adapters of this run and log them; nothing where it trained none. Trouble is said, never raised: the
    report is there already.
    """
    warm, trained = (_adapter(context, stage) for stage in ("warm_start", "train"))
    if warm is None and trained is None:
        if context.config.train.full_parameters:
            context.say(
                "  no model is logged: all weights were trained, and a package holds adapters; see artifacts/train-…"
            )
        return
    config = context.config
    if warm is None and config.train.warm_start.enabled:
        context.say("  no model is logged: the warm start's adapter was not kept (delete its artifact to make it anew)")
        return
    try:
        folder = base_model(context)
        base = BaseReference(
            path=config.model.path,
            revision=config.model.revision,
            dtype=config.model.dtype,
            context=config.model.context,
            checksum=model_checksum(folder),
        )
        package = write_package(
            context.run_folder / "model",
            base,
            warm_start=warm,
            adapter=trained,
            config=asdict(config),
            card=markdown(_card(context, lines)),
        )
    except (CodegrepError, OSError) as error:
        context.say(f"  no model is logged: {error}")
        return
    f05 = {line.retriever: line.f05_mean for line in lines}
    context.tracker.policy(
        package.folder,
        name=f"{config.name}-seed{config.seed}",
        held_out_f05=next((f05[subject] for subject in _SUBJECTS if subject in f05), None),
        data=context.need("prepare").fingerprint[:12],
        register=config.tracking.register,
    )


def _adapter(context: Context, stage: str) -> Path | None:
    artifact = context.artifacts.get(stage)
    folder = artifact.folder / "adapter" if artifact is not None and artifact.complete else None
    return folder if folder is not None and folder.is_dir() else None


def _card(context: Context, lines: Sequence[EvaluationRow]) -> ModelCard:
    config, grpo = context.config, context.config.train.grpo
    return ModelCard(
        name=f"{config.name}-seed{config.seed}",
        base_model=config.model.path,
        warm_started=config.train.warm_start.enabled,
        design={
            "reward": f"{config.reward.name} {config.reward.params or ''}".strip(),
            "advantage": f"{config.advantage.name} {config.advantage.params or ''}".strip(),
            "steps": grpo.steps if grpo.enabled else "none (warm start only)",
            "issues a step": grpo.prompts_per_step,
            "group size": grpo.group_size,
            "KL coefficient": grpo.kl,
            "learning rate": grpo.learning_rate,
            "LoRA": f"r={config.train.lora.r}, alpha={config.train.lora.alpha}",
            "seed": config.seed,
        },
        data={config.data.name: context.need("prepare").fingerprint[:12]},
        evaluation=lines,
        command=command(sys.argv[1:]),
        commit=str(snapshot()["git"].get("commit", "")),
        run_id=context.tracker.run_id,
    )
