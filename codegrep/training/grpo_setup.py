"""What a GRPO run asks of TRL: its arguments, the order of issues, and rollouts in the form that it takes."""

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
from codegrep.training.learning_rate import warmup_steps
from codegrep.training.scoring import SHAPE

# TRL scores the reference only where the coefficient of KL is not 0. This one is lost in the rounding of any gradient.
_UNFELT = 1e-12


def grpo_arguments(
    settings: GRPOSettings, output_dir: Path, seed: int, workers: int, max_completion_tokens: int, use_cpu: bool
) -> GRPOConfig:
    """TRL's arguments: a batch is prompts_per_step · group_size rollouts, used for updates_per_batch optimiser steps.

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
        output_dir=str(output_dir),
        max_steps=settings.steps,
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
        warmup_steps=warmup_steps(settings.warmup_share, settings.steps),
        max_grad_norm=settings.max_grad_norm,
        beta=settings.kl or (_UNFELT if settings.measure_kl else 0.0),
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high,
        loss_type=settings.loss_type,
        scale_rewards=settings.scale_rewards,
        importance_sampling_level=settings.importance,
        mask_truncated_completions=settings.mask_truncated,
        use_bias_correction_kl=settings.kl_estimator == "k3_corrected",
        # Rollouts are sampled elsewhere. TRL divides logits by the temperature, so it must be the one that was used.
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        shuffle_dataset=False,  # the dataset is the schedule
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        disable_dropout=False,
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        # Never inside the inner updates of a batch: rollouts are not part of a checkpoint.
        save_steps=math.ceil(settings.save_every / every) * every,
        save_total_limit=settings.keep,
        seed=seed,
        data_seed=seed,
        use_cpu=use_cpu,
        bf16=not use_cpu,
        gradient_checkpointing=False,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to=[],
        ddp_find_unused_parameters=False,
    )


def schedule(ids: Sequence[str], settings: GRPOSettings, seed: int) -> list[str]:
    """The issue ids of all batches, one after another, so that the place in the data is the step and resume is exact.

    Each pass over the issues is shuffled anew; what does not fill a batch is left to the next pass, so that no batch
    holds an issue twice.

    Raises:
        DataError: fewer issues than prompts_per_step.
    """
    size = settings.prompts_per_step
    if len(ids) < size:
        raise DataError(
            f"{len(ids)} training issues do not fill one step of train.grpo.prompts_per_step={size}",
            "Add issues or lower train.grpo.prompts_per_step",
        )
    wanted = math.ceil(settings.steps / settings.updates_per_batch) * size
    rows: list[str] = []
    for epoch in range(math.ceil(wanted / (len(ids) // size * size))):
        order = sorted(ids)
        random.Random(f"{seed}-{epoch}").shuffle(order)
        rows += order[: len(ids) // size * size]
    return rows[:wanted]


def training_rows(rollouts: Sequence[Rollout], masks: Sequence[Sequence[int]], eos: int) -> dict[str, list[Any]]:
    """What TRL's rollout_func returns. masks: tokens in the loss.

    A lost rollout is a single token outside the loss, after the prompt of its group; where the whole group is lost,
    after another such token, so that a prompt longer than the context never reaches the model.
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
