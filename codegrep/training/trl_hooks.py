"""Public hooks in the place of TRL's private methods; no other module overrides them.

TRL 1.16 names two extension points for subclasses: `rollout_func`, and advantages of shape (B,) or (B, T) made in
`_generate_and_score_completions`. Neither these nor the methods overridden here are a stable API:
tests/training/test_trl_hooks.py fails where a new TRL has changed them.
"""

from __future__ import annotations

import logging
import time
from typing import Any, cast

import torch
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from codegrep.errors import InfrastructureError
from codegrep.training.token_metrics import LogprobGap

_PROMPT_COLUMNS = ("prompt_ids", "prompt_mask")
_COMPLETION_COLUMNS = (
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "old_per_token_logps",
    "ref_per_token_logps",
    "sampling_per_token_logps",
)


class HookedGRPOTrainer(GRPOTrainer):
    """TRL's trainer with public hooks for what it keeps in private methods.

    Subclasses override `shape_advantages`, `batch_scale`, `weigh_rollouts`, `extra_loss` and `observe`. Three changes
    leave the mathematics alone: rows are not shuffled among the microbatches of a batch, so that groups stay together;
    padding is cut to each microbatch; and on a CPU only tokens in the loss are scored, with a prompt computed once for
    its group (`codegrep.training.scoring`).

    Attributes:
        fast_scoring: use that scoring; otherwise TRL's own runs.
        seconds: wall time since `close_step` by phase: "score" is TRL's scoring, rollouts included, "step" the whole.
        importance_cap: above 0, the policy term of each token is multiplied by
            min(exp(log p at training - log p at sampling), importance_cap), truncated importance sampling as in TRL's
            own vLLM modes ("token_truncate"). KL and normaliser are left alone.
        logprob_gap: of the step; None where the engine gave no log-probabilities, or at a temperature other than 1
            (engines give raw log-probabilities).
    """

    def __init__(self, *args: Any, fast_scoring: bool, importance_cap: float = 0.0, **kwargs: Any) -> None:
        self.fast_scoring = fast_scoring
        self.importance_cap = importance_cap
        self.seconds = {"score": 0.0, "step": 0.0}
        self.logprob_gap: LogprobGap | None = None
        self._loss_inputs: dict[str, Any] | None = None  # of the microbatch whose loss is being computed
        self._scored: Tensor | None = None  # (B, C) tokens of the loss in what is scored next
        self._sampled_at: Tensor | None = None  # (B, C) log-probabilities at sampling of the microbatch
        self._logps: Tensor | None = None  # (B, C) of the microbatch, differentiable
        self._entropy: Tensor | None = None  # as _logps, without gradient
        self._gaps: list[Tensor] = []
        logging.getLogger("trl.trainer.grpo_trainer").addFilter(_without_unscored_warning)
        super().__init__(*args, **kwargs)

    def shape_advantages(self, advantages: Tensor, width: int) -> Tensor:
        """Return the advantages that the loss uses, (B_local,) or one a token (B_local, width).

        Args:
            advantages: (B_local,) normalised in their groups, in the order of the rollouts.
            width: of the padded completions.
        """
        raise NotImplementedError

    def batch_scale(self, output: dict[str, Any]) -> Tensor | None:
        """Return a factor () on the loss of the whole batch; None is 1. output: the batch as TRL scored it."""
        raise NotImplementedError

    def weigh_rollouts(self, logps: Tensor, inputs: dict[str, Any], mask: Tensor) -> Tensor | None:
        """Return factors (B,) on the advantages of a microbatch, without gradient; None is 1.

        Args:
            logps: (B, C) log-probabilities under the policy of the batch's first update.
            inputs: the microbatch.
            mask: (B, C) tokens in the loss.
        """
        raise NotImplementedError

    def extra_loss(self, logps: Tensor, inputs: dict[str, Any], mask: Tensor) -> Tensor | None:
        """Return what is added to TRL's loss of a microbatch; None is 0.

        Args:
            logps: (B, C) log-probabilities under the current policy, differentiable.
            inputs: the microbatch.
            mask: (B, C) tokens in the loss.
        """
        raise NotImplementedError

    def observe(self, logps: Tensor, entropy: Tensor, inputs: dict[str, Any], mask: Tensor) -> None:
        """Take note of a microbatch after its loss.

        Args:
            logps: (B, C) log-probabilities under the current policy, without gradient.
            entropy: (B, C), without gradient.
            inputs: the microbatch, with advantages as the loss used them.
            mask: (B, C) tokens in the loss.
        """
        raise NotImplementedError

    def _generate(self, prompts: list[Any]) -> Any:
        generated = super()._generate(prompts)
        self._scored = _padded_mask(generated[1], generated[2], int(self.pad_to_multiple_of or 1))
        return generated

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        start = time.perf_counter()
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output["advantages"] = self.shape_advantages(output["advantages"], output["completion_ids"].shape[1])
        scale = self.batch_scale(output)
        if scale is not None:
            output["batch_scale"] = scale
        self._scored = None
        self.seconds["score"] += time.perf_counter() - start
        return output

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        if not cast(torch.nn.Module, self.model).training:
            return super()._prepare_inputs(generation_batch)
        parts = cast(GRPOConfig, self.args).steps_per_generation or 1
        generate_every = parts * self.num_iterations
        if self._step % generate_every == 0 or self._buffered_inputs is None:
            scored = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = cast(Any, split_tensor_dict(scored, parts))
        return cast(Any, self._buffered_inputs)[self._step % parts]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        inputs = trim_padding(inputs)
        mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        self._scored = mask.bool()
        self._sampled_at = inputs.get("sampling_per_token_logps")
        self._loss_inputs = inputs
        try:
            loss: Tensor = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
            assert self._logps is not None and self._entropy is not None
            extra = self.extra_loss(self._logps, inputs, mask)
            self.observe(self._logps.detach(), self._entropy, inputs, mask)
        finally:
            self._scored = self._sampled_at = self._loss_inputs = self._logps = self._entropy = None
        loss = loss if extra is None else loss + extra
        return loss * inputs["batch_scale"] if "batch_scale" in inputs else loss

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if not self.fast_scoring or self._scored is None or compute_aux_loss:
            scores = super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size,
                compute_entropy,
                compute_aux_loss,
                **kwargs,
            )
        else:
            prompt_length = input_ids.size(1) - logits_to_keep
            scored = torch.zeros_like(input_ids, dtype=torch.bool)
            # Tokens of truncated completions that TRL masks are neither attended to nor scored.
            scored[:, prompt_length:] = self._scored.to(input_ids.device) & attention_mask[:, prompt_length:].bool()
            tokens = model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                scored=scored,
                prompt_length=prompt_length,
                temperature=self.temperature,
            )
            entropy = tokens.entropy[:, prompt_length:] if compute_entropy else None
            scores = (tokens.logprobs[:, prompt_length:], entropy, None)
        if self._loss_inputs is not None and self._scored is not None:
            self._logps, self._entropy = scores[0], None if scores[1] is None else scores[1].detach()
            self._compare(scores[0].detach(), self._loss_inputs, self._scored)
        return scores  # type: ignore[no-any-return]

    def _compare(self, logprobs: Tensor, inputs: dict[str, Any], scored: Tensor) -> None:
        """Record the gap to the engine, and weigh the advantages, which the loss reads next."""
        # With several updates a batch, the batch belongs to the policy before the first of them.
        old = inputs.get("old_per_token_logps")
        first = logprobs if old is None else old
        weights = self.weigh_rollouts(first, inputs, scored)
        if weights is not None:
            advantages = inputs["advantages"]
            inputs["advantages"] = advantages * (weights if advantages.dim() == 1 else weights[:, None])
        sampled_at = self._sampled_at
        if sampled_at is None or self.temperature != 1.0:
            if self.importance_cap:
                raise InfrastructureError(
                    "the importance-sampling correction needs the engine's log-probabilities, at temperature 1",
                    "Set engine.sync.max_staleness=0",
                )
            return
        difference = torch.where(scored, first - sampled_at, 0.0)
        self._gaps.append(difference[scored])
        if self.importance_cap:
            advantages = inputs["advantages"]
            advantages = advantages[:, None] if advantages.dim() == 1 else advantages
            inputs["advantages"] = advantages * difference.exp().clamp(max=self.importance_cap)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, without its own metrics but the seconds of the step.

        The others average microbatches whatever they hold, and take the mask for the length of a completion.
        """
        metrics = self._metrics["train" if cast(torch.nn.Module, self.model).training else "eval"]
        for name in set(metrics) - {"step_time"}:
            del metrics[name]
        super().log(logs, start_time)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Do TRL's training step, timed."""
        start = time.perf_counter()
        loss: Tensor = super().training_step(  # type: ignore[no-untyped-call]
            model, inputs, num_items_in_batch
        )
        self.seconds["step"] += time.perf_counter() - start
        return loss

    def close_step(self) -> dict[str, float]:
        """Return seconds by phase and compute `logprob_gap` since the last call, once an optimiser step."""
        seconds, self.seconds = self.seconds, {"score": 0.0, "step": 0.0}
        differences = torch.cat(self._gaps) if self._gaps else torch.empty(0)
        self._gaps = []
        self.logprob_gap = LogprobGap.of(differences) if differences.numel() else None
        return seconds


def trim_padding(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a microbatch without columns that are padding in all rows; at least one column of each stays."""
    prompt = max(1, int(inputs["prompt_mask"].sum(1).max()))
    completion = max(1, int(inputs["completion_mask"].sum(1).max()))
    trimmed = dict(inputs)
    for name in _PROMPT_COLUMNS:
        trimmed[name] = inputs[name][:, -prompt:]
    for name in _COMPLETION_COLUMNS:
        if name in inputs:
            trimmed[name] = inputs[name][:, :completion]
    if inputs["advantages"].dim() == 2:
        trimmed["advantages"] = inputs["advantages"][:, :completion]
    return trimmed


def _padded_mask(completion_ids: list[list[int]], env_mask: list[list[int]] | None, multiple: int) -> Tensor:
    """Return (B, C) bool, tokens in the loss, right-padded to a multiple of `multiple` as TRL pads the completions."""
    masks = env_mask or [[1] * len(ids) for ids in completion_ids]
    width = -(-max(len(ids) for ids in completion_ids) // multiple) * multiple
    padded = torch.zeros(len(masks), width, dtype=torch.bool)
    for row, mask in enumerate(masks):
        padded[row, : len(mask)] = torch.tensor(mask, dtype=torch.bool)
    return padded


def _without_unscored_warning(record: logging.LogRecord) -> bool:
    # TRL prints the whole row of a rollout without reward; here such rollouts are expected, and counted.
    return not record.getMessage().startswith("All reward functions returned None")
