"""Trajectories of the scripted teacher over the training issues: one artifact, shared by seeds and reward designs."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from codegrep.config import WarmStartConfig
from codegrep.errors import DataError
from codegrep.pipeline import mined_targets
from codegrep.pipeline.context import Context
from codegrep.pipeline.policies.policy_files import base_model
from codegrep.pipeline.sandboxes import sandbox_for
from codegrep.pipeline.workers import AgentSettings, TeacherWorker
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rewards.turn_credit import CreditWeights, turn_weights
from codegrep.rollout.outcome import turn_facts
from codegrep.rollout.record import Rollout, from_row
from codegrep.rollout.store import RolloutWriter, read_rollouts
from codegrep.runtime.artifacts import Artifact
from codegrep.runtime.map_batches import through_ray_data


def demonstrations(context: Context) -> Artifact:
    """The artifact, made now if it is not there. An interrupted one continues with the issues that are missing.

    Raises:
        DataError: no trajectory could be made at all.
    """
    config = context.config
    training = mined_targets.training_issues(context)
    artifact = context.store.open("demonstrations", inputs(context))
    if artifact.complete:
        return artifact
    started = time.monotonic()
    folder = artifact.folder / "rollouts"
    # What the machine lost is asked again.
    done = {r.instance_id for r in read_rollouts(folder) if not r.error} if folder.is_dir() else set()
    todo = [issue for issue in training if issue.instance_id not in done]
    arguments = {
        "model": str(base_model(context)),
        "settings": AgentSettings(config.agent, config.tools, config.model.context),
        "teacher": config.train.warm_start.teacher,
        "sandbox": sandbox_for(context),
    }
    with RolloutWriter(folder) as writer, context.progress("teacher", len(training)) as advance:
        advance(len(training) - len(todo))
        for rows in through_ray_data(todo, TeacherWorker, arguments, batch=16, actors=1, num_cpus=0.5):
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


def inputs(context: Context) -> dict[str, Any]:
    """What decides the trajectories: issues, protocol, tools, teacher, tokenizer."""
    config = context.config
    warm_start = config.train.warm_start
    credit = {k: v for k, v in asdict(warm_start).items() if k.startswith("credit_")}
    return {
        "issues": mined_targets.training_fingerprint(context),
        "agent": config.agent,
        "tools": config.tools,
        "teacher": warm_start.teacher,
        "credit": credit,
        "tokenizer": [config.model.path, config.model.revision, config.model.context],
    }


def weighted(rollout: Rollout, config: WarmStartConfig) -> Rollout:
    """Set the SFT weight of every turn by what it found (SPEC 3.3)."""
    credit = CreditWeights(
        new_gold=config.credit_new_gold,
        seen_gold=config.credit_seen_gold,
        no_gold=config.credit_no_gold,
        empty=config.credit_empty,
    )
    for turn, weight in zip(rollout.turns, turn_weights(turn_facts(rollout), rollout.gold_files, credit), strict=True):
        turn.weight = weight
    return rollout
