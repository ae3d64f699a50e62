"""GRPO in rungs: train to a step, measure the policy on selection issues, go on. The best rung becomes the result.

The selection issues are validation issues; where a split has none, they are a part of the held-out ones. What is chosen
by them is not reported on them: the evaluation leaves them out (`reported`), or the best of many rungs would look
better than it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from codegrep.config import Config
from codegrep.engines.models import PolicyFiles
from codegrep.errors import ConfigError, InfrastructureError
from codegrep.issues import Issue
from codegrep.issues.roles import EVALUATION
from codegrep.metrics.retrieval import score_issue
from codegrep.metrics.scores import first_best
from codegrep.pipeline.context import Context
from codegrep.pipeline.policies.engines import InProcess
from codegrep.pipeline.sandboxes import sandbox_for
from codegrep.pipeline.stages.prepare import Prepared
from codegrep.pipeline.workers import AgentSettings, AgentWorker
from codegrep.rollout.record import from_row
from codegrep.runtime.artifacts import Artifact, write_json
from codegrep.runtime.map_batches import through_ray_data

LADDER_FILE = "ladder.json"
_ADAPTER = ("adapter_model.safetensors", "adapter_config.json")


@dataclass(frozen=True)
class Rung:
    """A measured checkpoint. f05: mean over the selection issues. folder: of the adapter, under the artifact's."""

    step: int
    f05: float
    issues: int
    lost: int
    folder: str


def selection(config: Config, prepared: Prepared) -> list[Issue]:
    """The issues that checkpoints are chosen by: drawn from the split's seed, the same for all runs on one split.

    They are validation issues (data.split.validation). Data without any, which are data of one's own, give a part of
    their held-out issues, but never those of repositories that conf/roles.yaml holds out or reserves.

    Raises:
        ConfigError: there is none to choose by, or nothing would be left to report on.
    """
    count = config.train.ladder.issues if config.train.ladder.every else 0
    if not count:
        return []
    split = config.data.split
    candidates: Sequence[Issue] = prepared.validation
    if not candidates:
        measured = {repo for repo, role in prepared.roles.items() if split.enforce_roles and role in EVALUATION}
        candidates = [issue for issue in prepared.held_out if issue.repo not in measured]
        if split.validation or not candidates:
            raise ConfigError(
                f"train.ladder chooses checkpoints, and no issue is of data.split.validation={split.validation}",
                "Give a source with such repositories, name some of your own there, or leave it empty to choose by a "
                "part of your own held-out issues",
            )
        if count >= len(candidates):
            raise ConfigError(
                f"train.ladder.issues={count} takes all {len(candidates)} held-out issues that may choose, so that "
                "none is left to report on",
                "Use about half of them, or give data.split.validation repositories",
            )
    return sorted(candidates, key=lambda issue: _draw(split.seed, issue.instance_id))[:count]


def reported(config: Config, prepared: Prepared) -> list[Issue]:
    """The held-out issues that results are given on."""
    chosen = {issue.instance_id for issue in selection(config, prepared)}
    return [issue for issue in prepared.held_out if issue.instance_id not in chosen]


def best(rungs: Sequence[Rung]) -> Rung:
    """The rung with the highest F0.5; of equals the earliest, which is nearest to the reference policy."""
    ordered = sorted(rungs, key=lambda rung: rung.step)
    return ordered[first_best([rung.f05 for rung in ordered])]


@dataclass(frozen=True)
class Climbed:
    """How a climb ended: the best rung, all rungs, and the last training result's numbers."""

    rung: Rung
    rungs: tuple[Rung, ...]
    last: Any


def climb(
    context: Context, artifact: Artifact, train_to: Callable[[int], Any], model: Path, prepared: Prepared
) -> Climbed:
    """Train rung by rung; continues where an earlier start ended.

    Args:
        context: of the run.
        artifact: of the train stage.
        train_to: trains to a step and returns a TrainingResult; called again, it goes on from there.
        model: what the adapters belong to.
        prepared: the issues.

    Raises:
        ConfigError: no issue can choose.
        InfrastructureError: every selection issue was lost at a rung.
    """
    config = context.config
    issues = selection(config, prepared)
    path = artifact.folder / LADDER_FILE
    rungs = read(path)
    steps, every = config.train.grpo.steps, config.train.ladder.every
    last = None
    for target in [*range(every, steps, every), steps]:
        if any(rung.step == target for rung in rungs) and target < steps:
            continue
        last = train_to(target)
        if not any(rung.step == last.step for rung in rungs):
            rung = _measure(context, artifact, last.adapter, last.step, model, issues)
            rungs.append(rung)
            write_json(path, [asdict(r) for r in rungs])
            # Beside the run's lock, where whoever searches over runs looks for it.
            write_json(context.run_folder / LADDER_FILE, [asdict(r) for r in rungs])
            context.tracker.metrics({"ladder/f05": rung.f05}, step=rung.step)
            context.say(f"  step {rung.step}: F0.5 {rung.f05:.3f} on {rung.issues} selection issues")
        if last.step < target or last.stopped:  # a time limit, or the reward's plateau
            break
    return Climbed(best(rungs), tuple(rungs), last)


def read(path: Path) -> list[Rung]:
    """The rungs noted so far."""
    try:
        return [Rung(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except OSError:
        return []


def _measure(
    context: Context, artifact: Artifact, adapter: Path, step: int, model: Path, issues: Sequence[Issue]
) -> Rung:
    config = context.config
    folder = artifact.folder / "ladder" / f"step-{step:06d}"
    folder.mkdir(parents=True, exist_ok=True)
    if config.train.full_parameters:
        from codegrep.training.base_model import keep_model  # torch: only when it has to be done

        keep_model(adapter, model, folder)
        files = PolicyFiles(folder)
    else:
        for name in _ADAPTER:
            shutil.copyfile(adapter / name, folder / name)
        files = PolicyFiles(model, folder)
    arguments = {
        # In the agents' own processes whatever the engine is: replicas belong to the policy in training.
        "engine": InProcess().open(config, files, lora_rank=0, beside=()),
        "settings": AgentSettings(config.agent, config.tools, config.model.context),
        "sandbox": sandbox_for(context),
        "temperature": 0.0,
        "seed": config.seed,
        "label": f"ladder-{step}",
    }
    by_id = {issue.instance_id: issue for issue in issues}
    scores, lost = [], 0
    blocks = through_ray_data(
        issues,
        AgentWorker,
        arguments,
        batch=config.evaluate.batch,
        actors=config.evaluate.actors,
        num_cpus=config.train.cpus_per_worker,
        num_gpus=1.0 if config.train.use_gpu else 0.0,
    )
    for row in (row for rows in blocks for row in rows):
        rollout = from_row(row["rollout"])
        if rollout.error:
            lost += 1
            continue
        issue = by_id[rollout.instance_id]
        scores.append(score_issue(issue.instance_id, issue.repo, rollout.answer, issue.gold_files).f05)
    if not scores:
        raise InfrastructureError(f"every selection issue was lost at step {step}", "The same command tries again")
    return Rung(step, fmean(scores), len(scores), lost, str(folder.relative_to(artifact.folder)))


def pausing(job: Any, step: int) -> Any:
    """The same GRPO job, ending its start at a step."""
    return replace(job, pause_at=step)


def _draw(seed: int, instance_id: str) -> str:
    return hashlib.sha256(f"selection/{seed}/{instance_id}".encode()).hexdigest()
