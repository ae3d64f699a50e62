"""What a GRPO run gives to TRL: its arguments, the order of issues, and rollouts in TRL's form."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trl import GRPOConfig

from codegrep.config import GRPOSettings
from codegrep.errors import ConfigError, DataError
from codegrep.rollout.record import Rollout
from codegrep.training.arguments import common_arguments
from codegrep.training.scoring import SHAPE

# TRL scores the reference only if the coefficient of KL is not 0; this one vanishes in the rounding of any gradient.
_NO_KL = 1e-12


def grpo_arguments(
    settings: GRPOSettings,
    output_dir: Path,
    seed: int,
    *,
    workers: int,
    max_completion_tokens: int,
    use_cpu: bool,
    gradient_checkpointing: bool = False,
) -> GRPOConfig:
    """Return TRL's arguments: a batch is prompts_per_step · group_size rollouts, used for updates_per_batch steps.

    Raises:
        ConfigError: prompts_per_step cannot be divided.
    """
    per_pass = settings.prompts_per_microbatch * workers
    if settings.prompts_per_step % per_pass:
        raise ConfigError(
            f"train.grpo.prompts_per_step ({settings.prompts_per_step}) is not a multiple of "
            f"prompts_per_microbatch x workers ({per_pass})",
            "Change one of them",
        )
    accumulation = settings.prompts_per_step // per_pass
    every = settings.updates_per_batch
    return GRPOConfig(
        **common_arguments(output_dir, settings.steps, settings.warmup_share, seed, use_cpu),
        per_device_train_batch_size=settings.prompts_per_microbatch * settings.group_size,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=accumulation,
        num_iterations=every,
        num_generations=settings.group_size,
        max_completion_length=max_completion_tokens,
        pad_to_multiple_of=SHAPE,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.scheduler,
        adam_beta1=settings.adam_beta1,
        adam_beta2=settings.adam_beta2,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        beta=settings.kl or (_NO_KL if settings.measure_kl else 0.0),
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high,
        loss_type=settings.loss_type,
        importance_sampling_level=settings.importance,
        mask_truncated_completions=settings.mask_truncated,
        use_bias_correction_kl=settings.kl_estimator == "k3_corrected",
        # TRL samples nothing, but divides logits by the temperature.
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        shuffle_dataset=False,  # the dataset is the schedule
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        disable_dropout=False,
        # Never inside the updates of a batch: rollouts are not part of a checkpoint.
        save_steps=math.ceil(settings.save_every / every) * every,
        save_total_limit=settings.keep,
        gradient_checkpointing=gradient_checkpointing,
    )


def schedule(ids: Sequence[str], settings: GRPOSettings, seed: int) -> list[str]:
    """Return the issue ids of all batches in order, so that resuming at a step is exact.

    Each pass over the issues is shuffled anew. Issues that do not fill a batch are left out of the pass, so that no
    batch holds an issue twice.

    Raises:
        DataError: fewer issues than prompts_per_step.
    """
    size = settings.prompts_per_step
    if len(ids) < size:
        raise DataError(
            f"{len(ids)} training issues do not fill one step of train.grpo.prompts_per_step={size}",
            "Add issues or lower train.grpo.prompts_per_step",
        )
    total = math.ceil(settings.steps / settings.updates_per_batch) * size
    rows: list[str] = []
    for epoch in range(math.ceil(total / (len(ids) // size * size))):
        order = sorted(ids)
        random.Random(f"{seed}-{epoch}").shuffle(order)
        rows += order[: len(ids) // size * size]
    return rows[:total]


def training_rows(rollouts: Sequence[Rollout], masks: Sequence[Sequence[int]], eos: int) -> dict[str, list[Any]]:
    """Return what TRL's rollout_func returns.

    A lost rollout becomes a single token outside the loss, after the prompt of its group. Where the whole group is lost
    the prompt is such a token too, so that a prompt longer than the context never reaches the model.

    Args:
        rollouts: groups stand together.
        masks: of each rollout, 1 on completion tokens in the loss.
        eos: the token of lost rollouts.
    """
    prompts = {r.instance_id: r.prompt_ids for r in rollouts if not r.lost}
    lost = [r.lost for r in rollouts]
    have_logprobs = all(
        gone or len(r.logprobs) == len(r.completion_ids) for r, gone in zip(rollouts, lost, strict=True)
    )
    return {
        "prompt_ids": [list(prompts.get(r.instance_id, [eos])) for r in rollouts],
        "completion_ids": [[eos] if gone else list(r.completion_ids) for r, gone in zip(rollouts, lost, strict=True)],
        "env_mask": [[0] if gone else list(mask) for mask, gone in zip(masks, lost, strict=True)],
        "logprobs": [[0.0] if gone else list(r.logprobs) for r, gone in zip(rollouts, lost, strict=True)]
        if have_logprobs
        else None,  # type: ignore[dict-item]
    }
