"""conf/train and conf/loss: warm start, GRPO, and what watches over it."""

from __future__ import annotations

from dataclasses import dataclass, field

RAIL_ACTIONS = ("off", "warn", "tag", "stop")


@dataclass
class LoraSettings:
    """LoRA over all linear projections (paper: r=32, alpha=64)."""

    r: int
    alpha: int
    dropout: float


@dataclass
class TeacherConfig:
    """train.warm_start.teacher: the scripted search that a small model is shown first.

    Attributes:
        greps, globs: most calls of each kind in its first turn. reads: candidates it reads. read_lines: lines of each.
        read_margin: it reads only when the second candidate scores at least this share of the first; 0 reads always.
        max_answer_files: most gold files of an answer.
    """

    greps: int
    globs: int
    reads: int
    read_lines: int
    read_margin: float
    max_answer_files: int


@dataclass
class WarmStartConfig:
    """train.warm_start: weighted SFT (SPEC 3.3) on the scripted teacher's trajectories.

    Attributes:
        enabled: False starts GRPO from the base model.
        epochs, learning_rate, warmup_share, weight_decay, max_grad_norm: the usual (colgrep: 1, 2e-5, 0.03, 0, 1.0).
        tokens_per_step: sequences are packed into a step up to so many tokens (padding included).
        max_tokens: longer trajectories are left out and counted.
        credit_*: turn weights of SPEC 3.3.
        save_every: optimiser steps between checkpoints.
        max_minutes: stop after so long (the schedule is cut, said in the log); 0 means no limit.
        seed: of the warm start alone, so that several training seeds can share one; None takes the run's.
        teacher: see TeacherConfig.
    """

    enabled: bool
    teacher: TeacherConfig
    epochs: float
    learning_rate: float
    warmup_share: float
    weight_decay: float
    max_grad_norm: float
    tokens_per_step: int
    max_tokens: int
    credit_new_gold: float
    credit_seen_gold: float
    credit_no_gold: float
    credit_empty: float
    save_every: int
    max_minutes: float
    seed: int | None = None


@dataclass
class GRPOSettings:
    """train.grpo (SPEC 1.6). Passed to TRL where TRL has it.

    Attributes:
        enabled: False ends training after the warm start.
        steps: optimiser steps. prompts_per_step: issues a step (64). group_size: rollouts an issue (8).
        prompts_per_microbatch: issues whose rollouts go through forward and backward together.
        learning_rate, warmup_share, scheduler: 5e-6, 0.05, cosine.
        adam_beta1, adam_beta2, weight_decay: of AdamW (arXiv 2605.07276: 0.9, 0.98, 0.1).
        kl: coefficient of KL against the model at the start of GRPO (0.02).
        measure_kl: score the reference also where kl is 0, so that policy/kl can be compared and guarded.
        kl_estimator: k3; k3_corrected multiplies it by the importance ratio; k2 has the gradient of the reverse KL.
        temperature, top_p, top_k: 1.0, 0.9, 50.
        clip_low, clip_high, loss_type, scale_rewards: not stated by the paper; TRL's names.
        importance: ratio of the policy to that of the batch's first update, for each "token" or "sequence" (GSPO).
        mask_truncated: completions whose last token is no end of text are masked (TRL); for causes see governance.
        denominator: "all" rollouts, or those "in_loss"; of the loss types that divide by rollouts (grpo, dr_grpo).
        dead_groups: groups without two different rewards: "keep" (advantage 0, KL acts) or "drop" (out of the loss).
        refill_rounds: how often groups that are dropped are replaced by groups of other issues in a step; 0 leaves the
            step smaller.
        sampling_correction: "none", or "sequence": advantages times the ratio of trainer to sampler over a rollout.
        sampling_low, sampling_high: rollouts with a ratio outside lose their policy term; None is no limit.
        updates_per_batch: inner updates a batch of rollouts (not stated; 1).
        max_grad_norm: gradient clipping.
        save_every: optimiser steps between checkpoints. keep: checkpoints kept.
        max_minutes: stop after so long; 0 means no limit.
    """

    enabled: bool
    steps: int
    prompts_per_step: int
    group_size: int
    prompts_per_microbatch: int
    learning_rate: float
    warmup_share: float
    scheduler: str
    kl: float
    temperature: float
    top_p: float
    top_k: int
    clip_low: float
    clip_high: float
    loss_type: str
    scale_rewards: str
    measure_kl: bool
    kl_estimator: str
    importance: str
    mask_truncated: bool
    denominator: str
    dead_groups: str
    refill_rounds: int
    sampling_correction: str
    sampling_low: float
    sampling_high: float | None
    updates_per_batch: int
    max_grad_norm: float
    save_every: int
    keep: int
    max_minutes: float
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    weight_decay: float = 0.0


@dataclass
class EarlyStopConfig:
    """train.early_stop: GRPO ends when the reward no longer rises and KL is in bounds (training.convergence).

    Attributes:
        enabled: False trains to the last step.
        window: optimiser steps that a mean reward is taken over.
        patience: steps without a rise of `min_gain` (reward) above the best mean.
        min_gain: see patience.
        max_kl: mean KL of the last window, nats/token, up to which the run counts as converged.
        min_steps: no earlier than this.
    """

    enabled: bool = False
    window: int = 50
    patience: int = 100
    min_gain: float = 0.01
    max_kl: float = 0.5
    min_steps: int = 200


@dataclass
class LadderConfig:
    """train.ladder: checkpoints are measured while GRPO runs, and the best one becomes the result (pipeline.ladder).

    Attributes:
        every: optimiser steps between rungs; 0 takes the last checkpoint, unmeasured.
        issues: validation issues that checkpoints are chosen by; where a split has none, held-out ones of repositories
            without a role, which the evaluation leaves out.
    """

    every: int = 0
    issues: int = 32


@dataclass
class RailConfig:
    """One guard rail of GRPO: a metric, a limit, and what happens beyond it.

    Attributes:
        metric: a name of codegrep.tracking.names.
        above: the limit. times_start: the limit as a multiple of the metric at the start. One of the two.
        action: warn says it, tag also marks the run in MLflow, stop also ends training with a checkpoint; off: nothing.
    """

    metric: str
    above: float | None = None
    times_start: float | None = None
    action: str = "tag"


@dataclass
class GuardRailsConfig:
    """train.guard_rails. window: steps that are averaged before a limit is looked at."""

    window: int
    rails: dict[str, RailConfig]


@dataclass
class TrainConfig:
    """conf/train.

    Attributes:
        workers: Ray Train workers. use_gpu: one GPU a worker.
        full_parameters: train all weights in place of a LoRA adapter, in the warm start and in GRPO. Needs
            model.dtype=float32, and an engine in the trainer's process for GRPO.
    """

    lora: LoraSettings
    warm_start: WarmStartConfig
    grpo: GRPOSettings
    guard_rails: GuardRailsConfig
    workers: int
    use_gpu: bool
    cpus_per_worker: float
    max_failures: int
    gradient_checkpointing: bool
    early_stop: EarlyStopConfig = field(default_factory=EarlyStopConfig)
    ladder: LadderConfig = field(default_factory=LadderConfig)
    full_parameters: bool = False
