"""Metrics of a step's tokens: KL to the reference, entropy, clipping, and the gap to the engine.

They are sums over the tokens in the loss, so that microbatches and workers add up to a mean over all tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from codegrep.training.loss_terms import kl_k3
from codegrep.training.step_metrics import Sums


@dataclass(frozen=True)
class Clip:
    """PPO's clipping region [1 - low, 1 + high] of the ratio of each "token" or of the "sequence" (importance)."""

    low: float
    high: float
    importance: str


@torch.no_grad()
def token_sums(
    logps: Tensor,
    entropy: Tensor,
    mask: Tensor,
    advantages: Tensor,
    *,
    old: Tensor | None,
    reference: Tensor | None,
    clip: Clip,
) -> Sums:
    """Return sums over the tokens of one microbatch.

    A token is clipped where the surrogate objective min(r·A, clip(r)·A) has no gradient: r < 1 - low with A < 0, or
    r > 1 + high with A > 0. With sequence ratios all tokens of a rollout are clipped or none.

    Args:
        logps: (B, T) log-probabilities under the current policy.
        entropy: (B, T).
        mask: (B, T) tokens in the loss.
        advantages: (B,) or (B, T).
        old: (B, T) log-probabilities at the batch's first update; None if this is it.
        reference: (B, T); None where KL is not measured.
        clip: region of the objective.
    """
    scored = mask.bool()
    count = float(scored.sum())
    log_ratio = torch.zeros_like(logps) if old is None else logps - old
    if clip.importance == "sequence":
        mean = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1.0)
        log_ratio = mean.expand_as(logps)
    ratio = log_ratio.exp()
    by_token = advantages[:, None] if advantages.dim() == 1 else advantages
    low = float(((ratio < 1 - clip.low) & (by_token < 0) & scored).sum())
    high = float(((ratio > 1 + clip.high) & (by_token > 0) & scored).sum())
    sums: Sums = {
        "policy/entropy": (float(entropy[scored].double().sum()), count),
        "policy/clip_ratio_low": (low, count),
        "policy/clip_ratio_high": (high, count),
        "policy/clip_ratio_region": (low + high, count),
    }
    if reference is not None:
        sums["policy/kl"] = (float(kl_k3(logps, reference)[scored].double().sum()), count)
    return sums


@dataclass(frozen=True)
class LogprobGap:
    """Distance of the trainer to the engine that sampled, over the tokens in the loss of a step.

    With d = log p(trainer) - log p(engine) of a token, in nats, and w = exp(d):

    Attributes:
        tokens: number of tokens, at least one.
        mean: of |d|.
        largest: of |d|.
        ratio: mean of w; its expectation is 1 if the engine samples from its whole distribution.
        ess: effective sample size of the weights w as a share of the tokens, (sum w)² / (n sum w²) (Kish).
    """

    tokens: int
    mean: float
    largest: float
    ratio: float
    ess: float

    @classmethod
    def of(cls, differences: Tensor) -> LogprobGap:
        """Compute it from d, one a token."""
        d = differences.double()
        w = d.exp()
        ess = w.sum() ** 2 / (w.square().sum() * len(w))
        return cls(len(d), float(d.abs().mean()), float(d.abs().max()), float(w.mean()), float(ess))

    @classmethod
    def pooled(cls, gaps: Sequence[LogprobGap]) -> LogprobGap:
        """Combine the gaps of workers, at least one, into that of all their tokens."""
        tokens = sum(gap.tokens for gap in gaps)
        weights = [gap.ratio * gap.tokens for gap in gaps]
        squares = sum(w**2 / (gap.tokens * gap.ess) for w, gap in zip(weights, gaps, strict=True))
        return cls(
            tokens,
            sum(gap.mean * gap.tokens for gap in gaps) / tokens,
            max(gap.largest for gap in gaps),
            sum(weights) / tokens,
            sum(weights) ** 2 / (tokens * squares),
        )

    def metrics(self) -> dict[str, float]:
        """Return the metrics under the project's names."""
        return {
            "policy/logprob_gap": self.mean,
            "policy/logprob_gap_max": self.largest,
            "policy/importance_ratio": self.ratio,
            "policy/ess": self.ess,
        }
