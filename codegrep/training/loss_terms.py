"""What the loss has beyond TRL 1.16: a second KL estimator, a correction for the sampler, another denominator.

TRL has everything else: loss types, clipping, k3 and its corrected form, importance ratios of tokens and sequences
(GSPO), masking of truncated completions. Its own correction for the sampler works with its own vLLM client only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def kl_k2(logps: Tensor, reference: Tensor) -> Tensor:
    """(B, T) k2 = ½ (log π - log π_ref)² of each token.

    Its gradient is that of the reverse KL for tokens sampled from π; the gradient of k3, which TRL has, is that of the
    forward KL. Both are >= 0, and k3 is the unbiased one as an estimate of the value (SPEC 7).
    """
    return 0.5 * (logps - reference) ** 2


def kl_k3(logps: Tensor, reference: Tensor) -> Tensor:
    """(B, T) k3 = exp(log π_ref - log π) - (log π_ref - log π) - 1, as TRL computes it."""
    return torch.exp(reference - logps) - (reference - logps) - 1


@dataclass(frozen=True)
class Denominator:
    """By what a microbatch's sum is divided, so that all microbatches and workers together give the batch's gradient.

    Attributes:
        accumulation: microbatches of an optimiser step.
        max_completion_tokens: of dr_grpo.
        batch_tokens: tokens in the loss of a whole step, as one worker's share of them (all, over the workers).
    """

    accumulation: float
    max_completion_tokens: int
    batch_tokens: Tensor


def aggregate(values: Tensor, mask: Tensor, loss_type: str, by: Denominator) -> Tensor:
    """One number from (B, T) values of tokens, as TRL makes it for the same loss type.

    Args:
        mask: (B, T) 1 on tokens of the loss.
        loss_type: grpo (mean over a rollout, then over rollouts), bnpo (over the microbatch's tokens), dapo (over the
            batch's tokens), dr_grpo (over rollouts times the longest completion).
    """
    return _AGGREGATES[loss_type](values * mask, mask, by)


def _grpo(values: Tensor, mask: Tensor, by: Denominator) -> Tensor:
    return (values.sum(-1) / mask.sum(-1).clamp(min=1.0)).mean() / by.accumulation


def _bnpo(values: Tensor, mask: Tensor, by: Denominator) -> Tensor:
    return values.sum() / mask.sum().clamp(min=1.0) / by.accumulation


def _dapo(values: Tensor, mask: Tensor, by: Denominator) -> Tensor:
    return values.sum() / by.batch_tokens.clamp(min=1.0)


def _dr_grpo(values: Tensor, mask: Tensor, by: Denominator) -> Tensor:
    return values.sum() / (len(values) * by.max_completion_tokens) / by.accumulation


_AGGREGATES: dict[str, Callable[[Tensor, Tensor, Denominator], Tensor]] = {
    "grpo": _grpo,
    "bnpo": _bnpo,
    "dapo": _dapo,
    "dr_grpo": _dr_grpo,
}
LOSS_TYPES = tuple(_AGGREGATES)


@dataclass(frozen=True)
class SequenceCorrection:
    """Importance ratio of a whole rollout between trainer and sampler (Cognition, SWE-grep; SPEC 5).

    ρ_j = Π_t π(a_jt) / π_sampled(a_jt) over sampled tokens, without gradient, multiplies the advantage of rollout j:
    with one update a batch this is the gradient of L = -Σ_j [ρ_j A_j] Σ_t log π(a_jt). Rollouts with an extreme ratio
    lose their part in the policy term; they stay in KL and in the denominators.

    Attributes:
        low, high: ratios outside [low, high] are extreme, None is no limit; the post gives no numbers.
    """

    low: float
    high: float | None

    def weights(self, logps: Tensor, sampled: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of the advantages and the ratios, each (B,).

        Args:
            logps: (B, T) log-probabilities under the policy that the batch was sampled from, computed by the trainer.
            sampled: (B, T) the same as the sampler gave them.
            mask: (B, T) tokens in the loss.
        """
        ratio = torch.exp(((logps - sampled) * mask).sum(-1)).detach()
        fine = (ratio >= self.low) & (ratio <= (math.inf if self.high is None else self.high))
        return torch.where(fine, ratio, 0.0), ratio
