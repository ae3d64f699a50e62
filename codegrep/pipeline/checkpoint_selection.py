"""Checkpoint selection: GRPO trains to a step, the policy is measured on selection issues, GRPO goes on.

The best measured checkpoint becomes the result. The selection issues are validation issues; where a split has none,
they are a part of the held-out ones. What is chosen by them is not reported on them: the evaluation leaves them out
(`reported`), or the best of many checkpoints would look better than it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from codegrep.config import Config
from codegrep.engines.models import PolicyFiles
from codegrep.errors import ConfigError, InfrastructureError
from codegrep.issues import Issue
from codegrep.issues.roles import EVALUATION
from codegrep.metrics.retrieval import score_issue
from codegrep.metrics.scores import first_best
from codegrep.pipeline.policies.engines import InProcess
from codegrep.pipeline.prepared import Prepared
from codegrep.pipeline.sandboxes import Sandboxes
from codegrep.pipeline.workers import AgentSettings, AgentWorker
from codegrep.rollout.record import from_row
from codegrep.runtime.artifacts import Artifact, write_json
from codegrep.runtime.map_batches import map_batches
from codegrep.runtime.progress import Progress
from codegrep.tracking.run import Tracker

if TYPE_CHECKING:
    from codegrep.training.ray_loop import TrainingResult

CHECKPOINTS_FILE = "checkpoints.json"
_ADAPTER = ("adapter_model.safetensors", "adapter_config.json")


@dataclass(frozen=True)
class MeasuredCheckpoint:
    """A checkpoint and its score.

    Attributes:
        step: optimiser steps that it has been trained for.
        f05: mean file F0.5 over the selection issues that were answered.
        issues: how many those were.
        lost: selection issues that the machine lost.
        folder: of the adapter or model, under the artifact's.
    """

    step: int
    f05: float
    issues: int
    lost: int
    folder: str


def selection_issues(config: Config, prepared: Prepared) -> list[Issue]:
    """Draw the issues that checkpoints are chosen by, from the split's seed: all runs on one split have the same.

    They are validation issues (data.split.validation). Data without any, which are data of one's own, give a part of
    their held-out issues, but never those of repositories that conf/roles.yaml holds out or reserves.

    Raises:
        ConfigError: there is none to choose by, or nothing would be left to report on.
    """
    count = config.train.checkpoint_selection.issues if config.train.checkpoint_selection.every else 0
    if not count:
        return []
    split = config.data.split
    candidates: Sequence[Issue] = prepared.validation
    if not candidates:
        measured = {repo for repo, role in prepared.roles.items() if split.enforce_roles and role in EVALUATION}
        candidates = [issue for issue in prepared.held_out if issue.repo not in measured]
        if split.validation or not candidates:
            raise ConfigError(
                f"train.checkpoint_selection has no issue of data.split.validation={split.validation} to choose by",
                "Give a source with such repositories, name some of your own there, or leave it empty to choose by a "
                "part of your own held-out issues",
            )
        if count >= len(candidates):
            raise ConfigError(
                f"train.checkpoint_selection.issues={count} takes all {len(candidates)} held-out issues, "
                "so that none is left to report on",
                "Use about half of them, or give data.split.validation repositories",
            )
    return sorted(candidates, key=lambda issue: _draw(split.seed, issue.instance_id))[:count]


def reported(config: Config, prepared: Prepared) -> list[Issue]:
    """Return the held-out issues that results are given on."""
    chosen = {issue.instance_id for issue in selection_issues(config, prepared)}
    return [issue for issue in prepared.held_out if issue.instance_id not in chosen]


@dataclass(frozen=True)
class CheckpointSelection:
    """Trains and measures in turn. model: folder of the model that the adapters belong to."""

    config: Config
    prepared: Prepared
    model: Path
    artifact: Artifact
    run_folder: Path
    tracker: Tracker
    progress: Progress
    sandboxes: Sandboxes

    def train(
        self, train_to: Callable[[int], TrainingResult]
    ) -> tuple[TrainingResult, MeasuredCheckpoint, list[MeasuredCheckpoint]]:
        """Train from checkpoint to checkpoint; continues where an earlier start ended.

        Args:
            train_to: trains to a step; called again, it goes on from there.

        Returns:
            The last training result, the best checkpoint, and all measured ones.

        Raises:
            ConfigError: no issue can choose.
            InfrastructureError: every selection issue was lost at a checkpoint.
        """
        issues = selection_issues(self.config, self.prepared)
        path = self.artifact.folder / CHECKPOINTS_FILE
        measured = read(path)
        steps, every = self.config.train.grpo.steps, self.config.train.checkpoint_selection.every
        for target in [*range(every, steps, every), steps]:
            if any(checkpoint.step == target for checkpoint in measured) and target < steps:
                continue
            result = train_to(target)
            if not any(checkpoint.step == result.step for checkpoint in measured):
                checkpoint = self._measure(result.adapter, result.step, issues)
                measured.append(checkpoint)
                # Beside the run's lock too, where whoever searches over runs looks for it.
                for file in (path, self.run_folder / CHECKPOINTS_FILE):
                    write_json(file, [asdict(each) for each in measured])
                self.tracker.metrics({"checkpoint/f05": checkpoint.f05}, step=checkpoint.step)
                self.progress.say(
                    f"  step {checkpoint.step}: F0.5 {checkpoint.f05:.3f} on {checkpoint.issues} selection issues"
                )
            if result.step < target or result.stopped:  # a time limit, or the reward's plateau
                break
        return result, best(measured), measured

    def _measure(self, adapter: Path, step: int, issues: Sequence[Issue]) -> MeasuredCheckpoint:
        config = self.config
        folder = self.artifact.folder / "checkpoints" / f"step-{step:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        if config.train.full_parameters:
            from codegrep.training.base_model import keep_model  # torch: only when it has to be done

            keep_model(adapter, self.model, folder)
            files = PolicyFiles(folder)
        else:
            for name in _ADAPTER:
                shutil.copyfile(adapter / name, folder / name)
            files = PolicyFiles(self.model, folder)
        arguments = {
            # In the agents' own processes whatever the engine is: replicas belong to the policy in training.
            "engine": InProcess().open(config, files, lora_rank=0, beside=()),
            "settings": AgentSettings(config.agent, config.tools, config.model.context),
            "sandbox": self.sandboxes.start(),
            "temperature": 0.0,
            "seed": config.seed,
            "label": f"checkpoint-{step}",
        }
        by_id = {issue.instance_id: issue for issue in issues}
        scores, lost = [], 0
        with self.progress.bar(f"step {step}", len(issues)) as advance:
            for rows in map_batches(
                issues,
                AgentWorker,
                arguments,
                batch=config.evaluate.batch,
                actors=config.evaluate.actors,
                num_cpus=config.train.cpus_per_worker,
                num_gpus=1.0 if config.train.use_gpu else 0.0,
            ):
                for row in rows:
                    rollout = from_row(row["rollout"])
                    if rollout.error:
                        lost += 1
                        continue
                    issue = by_id[rollout.instance_id]
                    scores.append(score_issue(issue.instance_id, issue.repo, rollout.answer, issue.gold_files).f05)
                advance(len(rows))
        if not scores:
            raise InfrastructureError(f"every selection issue was lost at step {step}", "The same command tries again")
        return MeasuredCheckpoint(step, fmean(scores), len(scores), lost, str(folder.relative_to(self.artifact.folder)))


def best(measured: Sequence[MeasuredCheckpoint]) -> MeasuredCheckpoint:
    """Return the checkpoint with the highest F0.5; of equals the earliest, which is nearest to the reference policy."""
    ordered = sorted(measured, key=lambda checkpoint: checkpoint.step)
    return ordered[first_best([checkpoint.f05 for checkpoint in ordered])]


def read(path: Path) -> list[MeasuredCheckpoint]:
    """Return the checkpoints measured so far."""
    try:
        return [MeasuredCheckpoint(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except OSError:
        return []


def _draw(seed: int, instance_id: str) -> str:
    return hashlib.sha256(f"selection/{seed}/{instance_id}".encode()).hexdigest()
