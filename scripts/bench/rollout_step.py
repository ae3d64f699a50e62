"""One GRPO step on recorded rollouts: this project's trainer against plain TRL on the same batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from codegrep.engines.engine import Sampling
from codegrep.engines.models import load_model, load_tokenizer
from codegrep.rollout.record import Rollout
from codegrep.training.grpo import CodegrepGRPOTrainer
from codegrep.training.grpo_setup import training_rows
from codegrep.training.lora import lora_config
from codegrep.training.scoring import add_scoring
from codegrep.training.signals import load_signal
from scripts.bench.rollout_material import Material


def trl_trainer(model: Any, tokenizer: Any, folder: Path, sampling: Sampling) -> GRPOTrainer:
    """TRL as it comes, for its generation."""
    arguments = GRPOConfig(
        output_dir=str(folder / "trl"),
        max_completion_length=sampling.max_tokens,
        per_device_train_batch_size=2,
        num_generations=2,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        use_cpu=True,
        bf16=False,
        report_to=[],
        disable_tqdm=True,
    )
    return GRPOTrainer(
        model=model,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["x"] * 2}),
        processing_class=tokenizer,
    )


def step_ratio(material: Material, rollouts: Sequence[Rollout], folder: Path, say: Callable[[str], None]) -> float:
    """Seconds of the trainer's own part of a step (scoring, reference, forward, backward, optimiser), ours by TRL's.

    Both get the same rollouts through TRL's rollout_func, so neither generates. The first step of each warms up.
    """
    ours = _ours(material, rollouts, folder)
    theirs = _theirs(material, rollouts, folder)
    say(f"a step on {len(rollouts)} rollouts without generation: {ours:.1f} s, plain TRL {theirs:.1f} s")
    return ours / theirs


def _settings(material: Material, group: int) -> Any:
    return replace(
        material.config.train.grpo,
        steps=2,
        prompts_per_step=1,
        prompts_per_microbatch=1,
        group_size=group,
        save_every=9,
    )


def _ours(material: Material, rollouts: Sequence[Rollout], folder: Path) -> float:
    config = material.config
    issue = replace(material.issues[0], instance_id="batch")
    batch = [replace(rollout, instance_id="batch") for rollout in rollouts]
    model = load_model(material.model, config.model.dtype)
    model.requires_grad_(False)
    add_scoring(model)
    trainer = CodegrepGRPOTrainer(
        model=model,
        tokenizer=load_tokenizer(material.model),
        issues=[issue],
        collect=lambda issues, size, step: batch,
        signal=load_signal(config.reward, config.advantage, config.governance),
        lora=config.train.lora,
        settings=_settings(material, len(batch)),
        max_completion_tokens=config.agent.max_completion_tokens,
        output_dir=folder / "ours",
        seed=0,
    )
    return _second_step(trainer)


def _theirs(material: Material, rollouts: Sequence[Rollout], folder: Path) -> float:
    config = material.config
    settings = _settings(material, len(rollouts))
    tokenizer = load_tokenizer(material.model)
    rows = training_rows(rollouts, [rollout.loss_mask for rollout in rollouts], int(tokenizer.eos_token_id))
    model = load_model(material.model, config.model.dtype)
    arguments = GRPOConfig(
        output_dir=str(folder / "theirs"),
        max_steps=settings.steps,
        per_device_train_batch_size=len(rollouts),
        num_generations=len(rollouts),
        max_completion_length=config.agent.max_completion_tokens,
        learning_rate=settings.learning_rate,
        beta=settings.kl,
        loss_type=settings.loss_type,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[lambda completions, **_: [float(i % 2) for i in range(len(completions))]],
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["batch"] * 4}),
        processing_class=tokenizer,
        peft_config=lora_config(config.train.lora),
        rollout_func=lambda prompts, trainer: {**rows, "logprobs": None},
    )
    return _second_step(trainer)


def _second_step(trainer: Any) -> float:
    from transformers import TrainerCallback

    marks: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            marks.append(time.perf_counter())

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            marks.append(time.perf_counter())

    trainer.add_callback(Clock())
    trainer.train()
    return marks[3] - marks[2]
