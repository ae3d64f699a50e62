"""The policy that a run has trained, packed with its card and logged as an MLflow model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from codegrep.config import Config
from codegrep.engines.models import PROVIDED_PREFIX, public_name
from codegrep.errors import CodegrepError
from codegrep.overrides import command
from codegrep.pipeline.policies.policy_files import Policies, base_model
from codegrep.pipeline.prepared import Prepared
from codegrep.runtime.progress import Progress
from codegrep.tracking.environment import snapshot
from codegrep.tracking.model_card import ModelCard, markdown
from codegrep.tracking.policy_package import BaseReference, model_checksum, write_package
from codegrep.tracking.rows import EvaluationRow
from codegrep.tracking.run import Tracker

# Whose held-out F0.5 is the policy's: the first that was measured.
_SUBJECTS = ("trained", "warm_start")


def log_policy(
    config: Config,
    prepared: Prepared,
    policies: Policies,
    run_folder: Path,
    tracker: Tracker,
    progress: Progress,
    lines: Sequence[EvaluationRow],
) -> bool:
    """Pack the adapters of this run and log them; return whether there is a policy. Nothing where it trained none.

    Trouble is printed, never raised: the report is there already.
    """
    warm, trained = (_adapter(policies, which) for which in ("warm_start", "trained"))
    if warm is None and trained is None:
        if config.train.full_parameters:
            progress.say(
                "  no model is logged: all weights were trained, and a package holds adapters; see artifacts/train-…"
            )
        return False
    if warm is None and config.train.warm_start.enabled:
        progress.say(
            "  no model is logged: the warm start's adapter was not kept (delete its artifact to make it anew)"
        )
        return False
    try:
        folder = base_model(config.model)
        base = BaseReference(
            path=config.model.path,
            revision=config.model.revision,
            dtype=config.model.dtype,
            context=config.model.context,
            checksum=model_checksum(folder),
            name=public_name(config.model.path),
        )
        package = write_package(
            run_folder / "model",
            base,
            warm_start=warm,
            adapter=trained,
            config=asdict(config),
            card=markdown(_card(config, prepared, tracker, lines)),
        )
    except (CodegrepError, OSError) as error:
        progress.say(f"  no model is logged: {error}")
        return False
    f05 = {line.retriever: line.f05_mean for line in lines}
    tracker.policy(
        package.folder,
        name=f"{config.name}-seed{config.seed}",
        held_out_f05=next((f05[subject] for subject in _SUBJECTS if subject in f05), None),
        data=prepared.fingerprint[:12],
        register=config.tracking.register,
    )
    return True


def _adapter(policies: Policies, which: str) -> Path | None:
    try:
        return policies.adapter(which)
    except CodegrepError:  # the stage has not run
        return None


def _card(config: Config, prepared: Prepared, tracker: Tracker, lines: Sequence[EvaluationRow]) -> ModelCard:
    grpo = config.train.grpo
    return ModelCard(
        name=f"{config.name}-seed{config.seed}",
        base_model=public_name(config.model.path),
        base_path=config.model.path if config.model.path.startswith(PROVIDED_PREFIX) else "",
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
        data={config.data.name: prepared.fingerprint[:12]},
        evaluation=lines,
        command=command(sys.argv[1:]),
        commit=str(snapshot()["git"].get("commit", "")),
        run_id=tracker.run_id,
    )
