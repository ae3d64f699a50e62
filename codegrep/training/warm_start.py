"""Warm start: supervised training on trajectories, each turn weighted by what it achieved (colgrep, arXiv 2610.05099).

    L = [ sum_i w_i sum_{t in T_i} CE_t ] / [ sum_i w_i |T_i| ]     over all turns i of an optimiser step

A subclass of transformers' Trainer and not of TRL's SFTTrainer, for sequences come as token ids, without a chat
template, and must not be packed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerBase, Trainer, TrainingArguments

from codegrep.config import WarmStartConfig
from codegrep.errors import DataError
from codegrep.training.arguments import common_arguments
from codegrep.training.examples import Example, plan_steps
from codegrep.training.scoring import SHAPE


class StepDataset(Dataset[list[Example]]):
    """Item k is this worker's share of optimiser step k, so that resuming at a step is exact."""

    def __init__(self, examples: Sequence[Example], plan: Sequence[Sequence[int]]) -> None:
        self._examples, self._plan = examples, plan

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, step: int) -> list[Example]:
        return [self._examples[index] for index in self._plan[step]]


def collate(steps: Sequence[Sequence[Example]], pad: int) -> dict[str, Tensor]:
    """Return one worker's share of a step: input_ids (B, T) and weights (B, T), right-padded to a multiple of SHAPE.

    A share without examples becomes one row without weight, so that every worker takes part in the step.
    """
    (examples,) = steps
    rows = examples or [Example((pad, pad), (0.0, 0.0))]
    width = -(-max(len(row) for row in rows) // SHAPE) * SHAPE
    input_ids = torch.full((len(rows), width), pad, dtype=torch.long)
    weights = torch.zeros(len(rows), width)
    for place, row in enumerate(rows):
        input_ids[place, : len(row)] = torch.tensor(row.input_ids)
        weights[place, : len(row)] = torch.tensor(row.weights)
    return {"input_ids": input_ids, "weights": weights}


class WarmStartTrainer(Trainer):
    """Weighted SFT of an adapter, or of all weights.

    Args:
        model: after `scoring.add_scoring`, or a PEFT model on such a one.
        tokenizer: for its pad token.
        examples: what is trained on.
        settings: train.warm_start.
        output_dir: for checkpoints.
        seed: of data order and dropout.
        rank: of this Ray Train worker.
        workers: number of Ray Train workers.
        use_cpu: train on the CPU.
        gradient_checkpointing: train.gradient_checkpointing.

    Raises:
        DataError: no examples.
    """

    def __init__(
        self,
        *,
        model: torch.nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        examples: Sequence[Example],
        settings: WarmStartConfig,
        output_dir: Path,
        seed: int,
        rank: int = 0,
        workers: int = 1,
        use_cpu: bool = True,
        gradient_checkpointing: bool = False,
        **kwargs: Any,
    ) -> None:
        if not examples:
            raise DataError(
                "the warm start has no trajectory to train on", "Check data, or set train.warm_start.enabled=false"
            )
        lengths = [len(example) for example in examples]
        plan = plan_steps(lengths, settings.tokens_per_step, settings.epochs, seed, workers)
        self._pad = cast(int, tokenizer.pad_token_id)
        self._window = _Window()
        self._epochs = settings.epochs
        arguments = TrainingArguments(
            **common_arguments(output_dir, len(plan), settings.warmup_share, seed, use_cpu),
            per_device_train_batch_size=1,  # one item is one step's share
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine",
            weight_decay=settings.weight_decay,
            max_grad_norm=settings.max_grad_norm,
            save_steps=settings.save_every,
            save_total_limit=1,
            gradient_checkpointing=gradient_checkpointing,
        )
        share = [step[rank] for step in plan]
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=StepDataset(examples, share),
            processing_class=tokenizer,
            **kwargs,
        )

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the planned steps in order, not prepared by accelerate: each worker holds its own share already."""
        return DataLoader(
            cast(Dataset[Any], self.train_dataset),
            batch_size=1,
            shuffle=False,
            collate_fn=lambda steps: collate(steps, self._pad),
        )

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Tensor],
        *_args: Any,
        **_kwargs: Any,
    ) -> Tensor:
        """Return the loss above, with the denominator over all workers."""
        weights = inputs["weights"]
        scores = model(input_ids=inputs["input_ids"], scored=weights > 0)
        total = weights.sum()
        workers = 1
        if dist.is_initialized():
            workers = dist.get_world_size()
            dist.all_reduce(total)
        # DistributedDataParallel averages gradients over workers; the loss needs their sum.
        loss: Tensor = -(scores.logprobs * weights).sum() / total.clamp(min=1e-12) * workers
        self._window.add(weights)
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add passes over the trajectories, and all workers' throughput and mean token weight, to each step's log."""
        if "loss" in logs:
            logs.update(self._window.close())
            logs["passes"] = self._epochs * self.state.global_step / self.state.max_steps
        super().log(logs, start_time)


class _Window:
    """Token counts between two logs."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._tokens = self._supervised = 0
        self._weight = 0.0

    def add(self, weights: Tensor) -> None:
        if self._start is None:
            self._start = time.monotonic()
        # The last token of a trajectory is sampled, so columns after the last supervised token are padding.
        ends = (weights > 0).int().cumsum(1).argmax(1) + 1
        self._tokens += int(ends.sum())
        self._supervised += int((weights > 0).sum())
        self._weight += float(weights.sum())

    def close(self) -> dict[str, float]:
        now = time.monotonic()
        seconds = now - (self._start or now)
        counts = torch.tensor([self._tokens, self._supervised, self._weight], dtype=torch.float64)
        if dist.is_initialized():
            every: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(every, counts)
            counts = torch.stack(every).sum(0)
        tokens, supervised, weight = counts.tolist()
        numbers = {
            "tokens_per_second": tokens / seconds if seconds else 0.0,
            "weight_mean": weight / supervised if supervised else 0.0,
        }
        self._start, self._tokens, self._supervised, self._weight = now, 0, 0, 0.0
        return numbers


def warm_start_names(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the trainer's log under the names of `codegrep.tracking.names`."""
    known = ("loss", "grad_norm", "learning_rate", "tokens_per_second", "weight_mean")
    if "loss" not in logs:
        return {}
    named = {name: float(logs[name]) for name in known} | {"epoch": float(logs["passes"])}  # HF's is of the whole plan
    return {f"warm_start/{name}": value for name, value in named.items()}
