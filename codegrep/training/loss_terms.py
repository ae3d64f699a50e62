"""Loss terms beyond TRL 1.16: the k2 estimator of KL, a correction for the sampler, another denominator.

TRL has loss types, clipping, k3 and its corrected form, token and sequence (GSPO) ratios, and masking of truncated
completions. Its correction for the sampler works with its own vLLM client only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def kl_k2(logps: Tensor, reference: Tensor) -> Tensor:
    """Return (B, T) k2 = ½ (log π - log π_ref)² of each token.

    For tokens sampled from π its gradient is that of the reverse KL, while k3's is that of the forward KL. As an
    estimate of the value, k3 is unbiased and k2 is not.
    """
    return 0.5 * (logps - reference) ** 2


def kl_k3(logps: Tensor, reference: Tensor) -> Tensor:
    """Return (B, T) k3 = exp(log π_ref - log π) - (log π_ref - log π) - 1, as TRL computes it."""
    return torch.exp(reference - logps) - (reference - logps) - 1


@dataclass(frozen=True)
class Denominator:
    """Divisors of a microbatch's sum, with which all microbatches and workers add up to the batch's gradient.

    Attributes:
        accumulation: microbatches of an optimiser step.
        max_completion_tokens: for dr_grpo.
        batch_tokens: tokens in the loss of a whole step over all workers, divided by the workers.
    """

    accumulation: float
    max_completion_tokens: int
    batch_tokens: Tensor


def aggregate(values: Tensor, mask: Tensor, loss_type: str, by: Denominator) -> Tensor:
    """Reduce (B, T) values of tokens to one number, as TRL does for the same loss type.

    Args:
        values: (B, T) of each token.
        mask: (B, T) 1 on tokens in the loss.
        loss_type: grpo (mean over a rollout, then over rollouts), bnpo (over the microbatch's tokens), dapo (over the
            batch's tokens), dr_grpo (over rollouts times the longest completion).
        by: divisors.
    """
    values = values * mask
    if loss_type == "grpo":
        return (values.sum(-1) / mask.sum(-1).clamp(min=1.0)).mean() / by.accumulation
    if loss_type == "bnpo":
        return values.sum() / mask.sum().clamp(min=1.0) / by.accumulation
    if loss_type == "dapo":
        return values.sum() / by.batch_tokens.clamp(min=1.0)
    assert loss_type == "dr_grpo"
    return values.sum() / (len(values) * by.max_completion_tokens) / by.accumulation


@dataclass(frozen=True)
class SequenceCorrection:
    """Importance ratio of a whole rollout between trainer and sampler (Cognition's SWE-grep).

    ρ_j = Π_t π(a_jt) / π_sampled(a_jt) over sampled tokens, without gradient, multiplies the advantage of rollout j;
    with one update a batch this gives the gradient of L = -Σ_j [ρ_j A_j] Σ_t log π(a_jt). A rollout with an extreme
    ratio has no policy term, and stays in KL and in the denominators.

    Attributes:
        low: least ratio that is not extreme; the post gives no number.
        high: largest such ratio; None is no limit.
    """

    low: float
    high: float | None

    def weights(self, logps: Tensor, sampled: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of the advantages and the ratios, each (B,).

        Args:
            logps: (B, T) the trainer's log-probabilities under the policy that the batch was sampled from.
            sampled: (B, T) the sampler's.
            mask: (B, T) tokens in the loss.
        """
        ratio = torch.exp(((logps - sampled) * mask).sum(-1)).detach()
        fine = (ratio >= self.low) & (ratio <= (math.inf if self.high is None else self.high))
        return torch.where(fine, ratio, 0.0), ratio
