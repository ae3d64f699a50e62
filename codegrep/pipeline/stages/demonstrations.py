"""Trajectories of the scripted teacher over the training issues: one artifact, shared by seeds and reward designs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from codegrep.config import Config, WarmStartConfig
from codegrep.errors import DataError
from codegrep.pipeline.mined_targets import TrainingSet
from codegrep.pipeline.policies.policy_files import base_model
from codegrep.pipeline.sandboxes import Sandboxes, tools_inputs
from codegrep.pipeline.workers import AgentSettings, TeacherWorker
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rewards.turn_credit import outcome_credit
from codegrep.rollout.outcome import trajectory_of
from codegrep.rollout.record import Rollout, from_row
from codegrep.rollout.store import RolloutWriter, read_rollouts
from codegrep.runtime.artifacts import Artifact, ArtifactStore
from codegrep.runtime.map_batches import map_batches
from codegrep.runtime.progress import Progress


def demonstrations(
    config: Config, training: TrainingSet, store: ArtifactStore, progress: Progress, sandboxes: Sandboxes
) -> Artifact:
    """Return the artifact, made now if it is not there. An interrupted one continues with the missing issues.

    Raises:
        DataError: no trajectory could be made at all.
    """
    artifact = store.open("demonstrations", inputs(config, training))
    if artifact.complete:
        return artifact
    started = time.monotonic()
    folder = artifact.folder / "rollouts"
    # What the machine lost is asked again.
    done = {r.instance_id for r in read_rollouts(folder) if not r.error} if folder.is_dir() else set()
    todo = [issue for issue in training.issues if issue.instance_id not in done]
    arguments = {
        "model": str(base_model(config.model)),
        "settings": AgentSettings(config.agent, config.tools, config.model.context),
        "teacher": config.train.warm_start.teacher,
        "sandbox": sandboxes.start(),
    }
    total = len(training.issues)
    with RolloutWriter(folder) as writer, progress.bar("teacher", total, total - len(todo)) as advance:
        for rows in map_batches(todo, TeacherWorker, arguments, batch=16, actors=1, num_cpus=0.5):
            for row in rows:
                writer.add(weighted(from_row(row["rollout"]), config.train.warm_start))
            writer.flush()
            advance(len(rows))
    rollouts = list({r.instance_id: r for r in read_rollouts(folder)}.values())
    usable = [r for r in rollouts if r.exit_cause == ExitCause.ANSWER]
    if not usable:
        reasons = Counter(r.error or r.exit_cause for r in rollouts).most_common(1)
        raise DataError(
            f"the teacher made no trajectory ({reasons[0][0] if reasons else 'no training issues'})",
            "Check the limits of agent, tools and model.context; what the machine lost is asked again",
        )
    artifact.finish(
        {
            "rollouts": len(rollouts),
            "exit_causes": dict(Counter(r.exit_cause for r in rollouts)),
            "found_gold": sum(1 for r in usable if r.answer),
            "seconds": round(time.monotonic() - started, 1),
        }
    )
    return artifact


def inputs(config: Config, training: TrainingSet) -> dict[str, Any]:
    """Return what decides the trajectories: issues, protocol, tools, teacher, tokenizer."""
    warm_start = config.train.warm_start
    credit = {k: v for k, v in asdict(warm_start).items() if k.startswith("credit_")}
    return {
        "issues": training.fingerprint,
        "agent": config.agent,
        **tools_inputs(config.tools),
        "teacher": warm_start.teacher,
        "credit": credit,
        "tokenizer": [config.model.path, config.model.revision, config.model.context],
    }


def weighted(rollout: Rollout, config: WarmStartConfig) -> Rollout:
    """Set the SFT weight of every turn by what it found (`rewards.turn_credit`)."""
    weights = outcome_credit(
        trajectory_of(rollout),
        new_gold=config.credit_new_gold,
        seen_gold=config.credit_seen_gold,
        no_gold=config.credit_no_gold,
        empty=config.credit_empty,
    )
    for turn, weight in zip(rollout.turns, weights, strict=True):
        turn.weight = weight
    return rollout
