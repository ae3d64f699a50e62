"""conf/train and conf/loss: warm start, GRPO, and what watches over it."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from codegrep.config.setting import group, setting


@group
class LoraSettings:
    """train.lora: LoRA over all linear projections but the output head."""

    r: int = setting("rank", ge=1, paper="32")
    alpha: int = setting("scale of the update, over the rank", ge=1, paper="64")
    dropout: float = setting("of the adapter's input", ge=0, lt=1)


@group
class TeacherConfig:
    """train.warm_start.teacher: the scripted search that a small model is shown first."""

    greps: int = setting("greps of its first turn at most", ge=1)
    globs: int = setting("globs of its first turn at most", ge=0)
    reads: int = setting("candidates that it reads", ge=0)
    read_lines: int = setting("lines of each read", ge=1)
    read_margin: float = setting(
        "it reads when the second candidate scores at least this share of the first; 0: always, above 1: never", ge=0
    )
    max_answer_files: int = setting("gold files of an answer at most", ge=1)


@group
class WarmStartConfig:
    """train.warm_start: weighted supervised training on the teacher's trajectories (colgrep, arXiv 2610.05099)."""

    enabled: bool = setting("false: GRPO starts from the base model")
    teacher: TeacherConfig = setting("see train.warm_start.teacher")
    epochs: float = setting("passes over the trajectories", gt=0, paper="colgrep: 1")
    learning_rate: float = setting("peak, with a cosine schedule", gt=0, paper="colgrep: 2e-5, all weights")
    warmup_share: float = setting("share of the steps with a rising rate", ge=0, le=1, paper="colgrep: 0.03")
    weight_decay: float = setting("of AdamW", ge=0, paper="colgrep: 0")
    max_grad_norm: float = setting("gradient clipping", gt=0, paper="colgrep: 1.0")
    tokens_per_step: int = setting("tokens of an optimiser step, padding included", ge=1)
    max_tokens: int = setting("longer trajectories are left out and counted", ge=1)
    credit_new_gold: float = setting("weight of a turn that finds a new gold file", ge=0, paper="colgrep: 1.0")
    credit_seen_gold: float = setting("of a turn that looks at a known gold file", ge=0, paper="colgrep: 0.6")
    credit_no_gold: float = setting("of a turn with other files only", ge=0, paper="colgrep: 0.3")
    credit_empty: float = setting("of an empty, failed or repeated turn", ge=0, paper="colgrep: 0.05")
    save_every: int = setting("optimiser steps between checkpoints", ge=1)
    max_minutes: float = setting("stop after so long; 0: no limit", ge=0)
    seed: int | None = setting(
        "of the warm start alone, so that training seeds can share one; null: the run's", ge=0, default=None
    )


@group
class GRPOSettings:
    """train.grpo (CodeGrep 3.6, A.4). Passed to TRL where TRL has it; conf/loss sets its recipe."""

    enabled: bool = setting("false: training ends with the warm start")
    steps: int = setting("optimiser steps", ge=1, paper="2,000 planned, stopped at 897")
    prompts_per_step: int = setting("issues of a step", ge=1, paper="64")
    group_size: int = setting("rollouts of an issue", ge=2, paper="8")
    prompts_per_microbatch: int = setting("issues whose rollouts pass together", ge=1, paper="8 completions a device")
    learning_rate: float = setting("peak", gt=0, paper="5e-6")
    warmup_share: float = setting("share of the steps with a rising rate", ge=0, le=1, paper="0.05")
    scheduler: str = setting("learning rate schedule, a name of transformers", paper="cosine")
    kl: float = setting("coefficient of KL against the model at the start of GRPO", ge=0, paper="0.02")
    temperature: float = setting("of sampling", gt=0, paper="1.0")
    top_p: float = setting("of sampling", gt=0, le=1, paper="0.9")
    top_k: int = setting("of sampling; 0: off", ge=0, paper="50")
    clip_low: float = setting("PPO's region is [1 - low, 1 + high]", gt=0)
    clip_high: float = setting("PPO's region is [1 - low, 1 + high]", gt=0)
    loss_type: Literal["grpo", "dapo", "bnpo", "dr_grpo"] = setting("TRL's loss type")
    measure_kl: bool = setting("measure policy/kl also where kl is 0")
    kl_estimator: Literal["k3", "k3_corrected", "k2"] = setting(
        "k3_corrected multiplies k3 by the importance ratio; the gradient of k2 is the reverse KL's"
    )
    importance: Literal["token", "sequence"] = setting("ratio to the batch's first update; sequence is GSPO's")
    mask_truncated: bool = setting("completions without an end of text are out of the loss")
    denominator: Literal["all", "in_loss"] = setting("rollouts that grpo and dr_grpo divide by")
    dead_groups: Literal["keep", "drop"] = setting(
        "groups without two different rewards: keep (advantage 0, KL acts), or drop from the loss"
    )
    refill_rounds: int = setting("rounds in which dropped groups are replaced by other issues", ge=0)
    sampling_correction: Literal["none", "sequence"] = setting(
        "sequence: advantages times the ratio of trainer to sampler over a rollout"
    )
    sampling_low: float = setting("a rollout with a smaller ratio loses its policy term", ge=0)
    sampling_high: float | None = setting("a rollout with a larger ratio loses its policy term; null: no limit", gt=0)
    updates_per_batch: int = setting("optimiser steps on one batch of rollouts", ge=1)
    max_grad_norm: float = setting("gradient clipping", gt=0)
    save_every: int = setting("optimiser steps between checkpoints", ge=1)
    keep: int = setting("checkpoints kept", ge=1)
    max_minutes: float = setting("stop after so long; 0: no limit", ge=0, paper="about 27 h")
    adam_beta1: float = setting("of AdamW", ge=0, lt=1, default=0.9, paper="2605.07276: 0.9")
    adam_beta2: float = setting("of AdamW", ge=0, lt=1, default=0.999, paper="2605.07276: 0.98")
    weight_decay: float = setting("of AdamW", ge=0, default=0.0, paper="2605.07276: 0.1")

    @model_validator(mode="after")
    def _fits_together(self) -> GRPOSettings:
        if self.prompts_per_step % self.prompts_per_microbatch:
            raise ValueError("prompts_per_step is not a multiple of prompts_per_microbatch; change one of the two")
        if self.importance == "sequence" and self.loss_type != "grpo":
            raise ValueError(f"importance=sequence (GSPO) does not go with loss_type={self.loss_type}; use grpo")
        if self.denominator == "in_loss" and self.loss_type not in ("grpo", "dr_grpo"):
            raise ValueError(
                f"denominator=in_loss does not go with loss_type={self.loss_type}, which divides by tokens"
            )
        if self.refill_rounds and self.dead_groups != "drop":
            raise ValueError("refill_rounds does nothing without dropped groups; set dead_groups=drop")
        if self.sampling_correction != "none" and self.temperature != 1.0:
            raise ValueError("sampling_correction compares log-probabilities at temperature 1; set temperature=1.0")
        if self.sampling_high is not None and self.sampling_low >= self.sampling_high:
            raise ValueError("sampling_low and sampling_high are no interval; use for example 0.5 and 2.0")
        return self


@group
class EarlyStopConfig:
    """train.early_stop: GRPO ends when the reward no longer rises and KL is in bounds."""

    enabled: bool = setting("false: train to the last step", default=False, paper="stopped at 897 of 2,000")
    window: int = setting("steps of a mean reward", ge=1, default=50)
    patience: int = setting("steps without a rise of min_gain above the best mean", ge=1, default=100)
    min_gain: float = setting("a rise of the reward counts from here", ge=0, default=0.01)
    max_kl: float = setting("mean KL of the last window up to which training may end, nats/token", gt=0, default=0.5)
    min_steps: int = setting("no earlier than this", ge=0, default=200)


@group
class CheckpointSelectionConfig:
    """train.checkpoint_selection: measure checkpoints while GRPO runs; the best one becomes the result."""

    every: int = setting("optimiser steps between measurements; 0: take the last checkpoint", ge=0, default=0)
    issues: int = setting(
        "validation issues that choose; without any, held-out issues, which are then left out of the report",
        ge=1,
        default=32,
    )


@group
class RailConfig:
    """train.guard_rails.rails.<name>: a metric, a limit, and what happens beyond it. One limit is set."""

    metric: str = setting("a name of codegrep.tracking.names")
    above: float | None = setting("the limit", default=None, allow_inf_nan=False)
    times_start: float | None = setting("the limit as a multiple of the metric at the start", gt=0, default=None)
    action: Literal["off", "warn", "tag", "stop"] = setting(
        "warn says it; tag also marks the run in MLflow; stop also ends training with a checkpoint", default="tag"
    )

    @model_validator(mode="after")
    def _has_one_limit(self) -> RailConfig:
        if (self.above is None) == (self.times_start is None):
            raise ValueError("needs one limit, above or times_start; set the other one to null")
        return self


@group
class GuardRailsConfig:
    """train.guard_rails: metrics of GRPO that are held against limits."""

    window: int = setting("steps that are averaged before a limit is looked at", ge=1)
    rails: dict[str, RailConfig] = setting("rails by name")


@group
class TrainConfig:
    """conf/train."""

    lora: LoraSettings = setting("see train.lora")
    warm_start: WarmStartConfig = setting("see train.warm_start")
    grpo: GRPOSettings = setting("see train.grpo")
    guard_rails: GuardRailsConfig = setting("see train.guard_rails")
    workers: int = setting("Ray Train workers; each holds the whole model", ge=1, paper="8 GPUs")
    use_gpu: bool = setting("one GPU a worker", paper="true")
    cpus_per_worker: float = setting("CPUs asked of Ray for a worker or an agent actor", gt=0)
    max_failures: int = setting("restarts from the last checkpoint after a lost worker", ge=0)
    gradient_checkpointing: bool = setting("less memory, more time")
    early_stop: EarlyStopConfig = setting("see train.early_stop", default_factory=EarlyStopConfig)
    checkpoint_selection: CheckpointSelectionConfig = setting(
        "see train.checkpoint_selection", default_factory=CheckpointSelectionConfig
    )
    full_parameters: bool = setting(
        "train all weights in place of an adapter; needs model.dtype=float32 and an engine in the trainer's process",
        default=False,
        paper="colgrep: true",
    )

    @model_validator(mode="after")
    def _steps_divide(self) -> TrainConfig:
        if self.grpo.prompts_per_step % self.workers:
            raise ValueError("grpo.prompts_per_step is not a multiple of workers; change one of the two")
        return self
