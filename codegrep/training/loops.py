"""The training loops of a Ray Train worker: build everything from plain data, train, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import ray.train
from transformers import PreTrainedTokenizerBase, Trainer

from codegrep.config import (
    AdvantageConfig,
    AnswerJudgeConfig,
    EarlyStopConfig,
    FunctionConfig,
    GovernanceConfig,
    GRPOSettings,
    GuardRailsConfig,
    LoraSettings,
    SyncConfig,
    TurnScoresConfig,
    WarmStartConfig,
)
from codegrep.issues.issue import Issue
from codegrep.rollout.record import Rollout
from codegrep.training.base_model import BaseModel
from codegrep.training.callbacks import CheckpointReport, OnLog, StepLog, TimeLimit, read_progress
from codegrep.training.convergence import EarlyStop, PauseAt
from codegrep.training.examples import Example
from codegrep.training.grpo import CodegrepGRPOTrainer
from codegrep.training.guard_rails import GuardRails, OnAlarm
from codegrep.training.lora import PolicyModel, attach_lora
from codegrep.training.ray_loop import report_checkpoint, resume_folder, work_folder
from codegrep.training.scoring import add_scoring
from codegrep.training.signals import load_answer_judge, load_signal, load_turn_scoring
from codegrep.training.warm_start import WarmStartTrainer, warm_start_names

# Opens the log in the worker, so that no tracker is pickled.
OpenLog = Callable[[], OnLog]
OpenAlarms = Callable[[], OnAlarm]


@dataclass(frozen=True)
class LivePolicy:
    """What a collector samples from.

    Attributes:
        model: the model in training; an engine in this process generates with it, others are sent its adapter.
        tokenizer: the base's.
        rank: of this Ray Train worker.
        workers: number of Ray Train workers.
    """

    model: PolicyModel
    tokenizer: PreTrainedTokenizerBase
    rank: int
    workers: int


class Collector(Protocol):
    """Samples rollouts from the policy."""

    def collect(self, issues: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        """Return group_size rollouts of the first issue, then of the second, …, from the current policy.

        Draws depend on seed, step and place only, so that a resumed run samples what an unbroken one does.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Return metrics of the last `collect`: the engine's weights, token faults."""
        ...

    def close(self) -> None:
        """Free engine and sandboxes."""
        ...


OpenCollector = Callable[[LivePolicy], Collector]


@dataclass(frozen=True)
class WarmStartJob:
    """Arguments of `warm_start_loop`; picklable. lora: None trains all weights."""

    base: BaseModel
    lora: LoraSettings | None
    settings: WarmStartConfig
    examples: Sequence[Example]
    seed: int
    open_log: OpenLog
    gradient_checkpointing: bool = False
    use_gpu: bool = False


@dataclass(frozen=True)
class GRPOJob:
    """Arguments of `grpo_loop`; picklable.

    Attributes:
        base: the warm-started model, with its adapter merged.
        lora: None trains all weights.
        open_alarms: returns what guard rails call, on rank 0.
        pause_at: optimiser step at which this start ends; 0 is the last.
        judge_cache: folder for the judgements of a judge of answers; "" keeps none.
    """

    base: BaseModel
    lora: LoraSettings | None
    settings: GRPOSettings
    issues: Sequence[Issue]
    reward: FunctionConfig
    advantage: AdvantageConfig
    governance: GovernanceConfig
    turn_scores: TurnScoresConfig
    guard_rails: GuardRailsConfig
    max_completion_tokens: int
    seed: int
    open_collector: OpenCollector
    open_log: OpenLog
    open_alarms: OpenAlarms | None = None
    gradient_checkpointing: bool = False
    use_gpu: bool = False
    early_stop: EarlyStopConfig = field(default_factory=EarlyStopConfig)
    pause_at: int = 0
    sync: SyncConfig = field(default_factory=SyncConfig)
    answer_judge: AnswerJudgeConfig = field(default_factory=AnswerJudgeConfig)
    judge_cache: str = ""


def warm_start_loop(config: dict[str, Any]) -> None:
    """Run weighted SFT; config: {"job": WarmStartJob}."""
    job: WarmStartJob = config["job"]
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    model, tokenizer = job.base.load(trainable=job.lora is None)
    add_scoring(model)
    with work_folder() as folder, resume_folder() as resume:
        trainer = WarmStartTrainer(
            model=model if job.lora is None else attach_lora(model, job.lora, job.seed),
            tokenizer=tokenizer,
            examples=job.examples,
            settings=job.settings,
            output_dir=folder,
            seed=job.seed,
            rank=rank,
            workers=workers,
            use_cpu=not job.use_gpu,
            gradient_checkpointing=job.gradient_checkpointing,
        )
        log = StepLog(_open(job.open_log, rank), warm_start_names)
        _train(trainer, log, resume, _time_limit(resume, job.settings.max_minutes, every=1))


def grpo_loop(config: dict[str, Any]) -> None:
    """Run GRPO; config: {"job": GRPOJob}."""
    job: GRPOJob = config["job"]
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    judging = load_answer_judge(job.answer_judge, Path(job.judge_cache) if job.judge_cache else None)
    judging.check()  # before minutes of rollouts
    model, tokenizer = job.base.load(trainable=job.lora is None)
    add_scoring(model)
    source = _Source()
    with work_folder() as folder, resume_folder() as resume:
        trainer = CodegrepGRPOTrainer(
            model=model,
            tokenizer=tokenizer,
            issues=job.issues,
            collect=source,
            signal=load_signal(job.reward, job.advantage, job.governance),
            turn_scoring=load_turn_scoring(job.turn_scores),
            judging=judging,
            lora=job.lora,
            settings=job.settings,
            max_completion_tokens=job.max_completion_tokens,
            output_dir=folder,
            seed=job.seed,
            workers=workers,
            use_cpu=not job.use_gpu,
            gradient_checkpointing=job.gradient_checkpointing,
            sync=job.sync,
            collected=source.metrics,
        )
        limit = _time_limit(resume, job.settings.max_minutes, every=job.settings.updates_per_batch)
        alarms = job.open_alarms() if job.open_alarms and rank == 0 else lambda _alarm: None
        rails = GuardRails(job.guard_rails, trainer.grpo_names, limit, alarms, read_progress(resume).get("guard_rails"))

        def names(logs: Any) -> dict[str, float]:
            return trainer.grpo_names(logs) | (rails.metrics() if "loss" in logs else {})

        log = StepLog(_open(job.open_log, rank), names)
        trainer.add_callback(rails)
        with closing(job.open_collector(LivePolicy(trainer.policy, tokenizer, rank, workers))) as collector:
            source.collector = collector
            trainer.add_callback(PauseAt(job.pause_at))
            trainer.add_callback(EarlyStop(job.early_stop, limit, job.settings.updates_per_batch))
            _train(trainer, log, resume, limit, lambda: {"guard_rails": rails.state()})


def _time_limit(resume: Path | None, max_minutes: float, every: int) -> TimeLimit:
    return TimeLimit(max_minutes, every=every, resumed=float(read_progress(resume).get("used_seconds", 0.0)))


def _train(
    trainer: Trainer,
    log: StepLog,
    resume: Path | None,
    limit: TimeLimit,
    notes: Callable[[], dict[str, Any]] = dict,
) -> None:
    if read_progress(resume).get("stopped"):
        return  # training had ended; the process was interrupted after its last checkpoint
    trainer.add_callback(log)
    trainer.add_callback(limit)
    trainer.add_callback(CheckpointReport(report_checkpoint, log, limit, notes))
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)


def _open(open_log: OpenLog, rank: int) -> OnLog:
    return open_log() if rank == 0 else lambda _step, _metrics: None


class _Source:
    """The collector that the trainer calls, set once the trainer exists: the collector samples from its model."""

    collector: Collector

    def __call__(self, issues: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        return self.collector.collect(issues, group_size, step)

    def metrics(self) -> dict[str, float]:
        return self.collector.metrics()
