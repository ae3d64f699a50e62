"""One GRPO update in plain NumPy and torch, written from the papers' formulas: no TRL, no padding, no microbatches.

Every rollout goes through the model by itself. Governance, turn weights, advantages, ratios, KL and denominators are
spelt out here once more; only reward designs, factors and turn scorers are the project's (they are tested by hand
elsewhere).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel, get_peft_model
from torch import Tensor

from codegrep.rewards.outcome import Outcome, RewardParts
from codegrep.rewards.turn_credit import RolloutFacts
from codegrep.rollout.outcome import outcome_of, trajectory_of
from codegrep.rollout.record import Rollout
from codegrep.training.base_model import BaseModel
from codegrep.training.lora import lora_config
from tests.training.made_rollouts import LORA


@dataclass(frozen=True)
class Recipe:
    """A design as the papers would write it down."""

    reward: Callable[[Outcome], RewardParts]
    factor: Callable[[Outcome], float] = lambda outcome: 1.0
    scale: str = "group"
    loo: bool = False
    handling: Mapping[str, str] = field(default_factory=dict)
    masked_in_group: bool = True
    lost_in_group: bool = False
    max_calls: int = 0
    gram: tuple[int, int] = (0, 0)  # n-gram of so many tokens, more often than so many times
    scorer: Callable[[RolloutFacts], Sequence[float | None]] | None = None
    only_answered: bool = True
    loss_type: str = "grpo"
    clip: tuple[float, float] = (0.2, 0.2)
    kl: float = 0.02
    kl_estimator: str = "k3"
    sequence_ratio: bool = False
    mask_truncated: frozenset[int] | None = None  # ids that end a text
    in_loss: bool = False
    drop_dead: bool = False
    correction: tuple[float, float] | None = None
    longest: int = 64


def cause_of(rollout: Rollout, recipe: Recipe) -> tuple[str, int]:
    last = len(rollout.turns) - 1
    if rollout.exit_cause == "infrastructure":
        return "infrastructure", last
    size, times = recipe.gram
    for index, turn in enumerate(rollout.turns):
        text = " ".join(f"<{token}>" for token in rollout.completion_ids[turn.start : turn.end])
        grams = {tuple(rollout.completion_ids[i : i + size]) for i in range(turn.start, turn.end - size + 1)}
        if times and any(text.count(" ".join(f"<{t}>" for t in gram)) > times for gram in grams):
            return "repetition", index
    for index, turn in enumerate(rollout.turns):
        if recipe.max_calls and len(turn.calls) > recipe.max_calls:
            return "excessive_calls", index
    return rollout.exit_cause, last


def governed(rollout: Rollout, recipe: Recipe) -> tuple[np.ndarray, float]:
    """(C,) tokens in the loss, and the reward; NaN is outside the group."""
    cause, turn = cause_of(rollout, recipe)
    mask = np.array(rollout.loss_mask, dtype=np.float64)
    handling = "full_mask" if cause == "infrastructure" else recipe.handling.get(cause, "normal")
    if handling == "full_mask":
        stays = recipe.lost_in_group if cause == "infrastructure" else recipe.masked_in_group
        return np.zeros_like(mask), 0.0 if stays else math.nan
    if handling == "last_turn":
        kept = np.zeros_like(mask)
        span = slice(rollout.turns[turn].start, rollout.turns[turn].end)
        kept[span] = mask[span]
        return kept, 0.0
    if recipe.mask_truncated is not None and rollout.completion_ids[-1] not in recipe.mask_truncated:
        mask = np.zeros_like(mask)
    return mask, recipe.reward(outcome_of(rollout)).total


def advantages(rollouts: Sequence[Rollout], rewards: np.ndarray, size: int, recipe: Recipe) -> np.ndarray:
    result = np.zeros(len(rollouts))
    batch_std = np.nanstd(rewards, ddof=1)
    for start in range(0, len(rollouts), size):
        group = rewards[start : start + size]
        there = group[~np.isnan(group)]
        if len(set(there)) < 2:
            continue
        scale = {"group": there.std(ddof=1), "batch": batch_std, "none": None}[recipe.scale]
        for place, reward in enumerate(group):
            if math.isnan(reward):
                continue
            baseline = (there.sum() - reward) / (len(there) - 1) if recipe.loo else there.mean()
            value = reward - baseline
            result[start + place] = value if scale is None else value / (scale + 1e-4)
    for index, rollout in enumerate(rollouts):
        if result[index]:
            result[index] *= recipe.factor(outcome_of(rollout))
    return result


def token_weights(rollout: Rollout, mask: np.ndarray, advantage: float, recipe: Recipe) -> np.ndarray:
    """w_t / m_t of arXiv 2605.07276."""
    weights = np.ones(len(mask))
    cause, _ = cause_of(rollout, recipe)
    if recipe.scorer is None or recipe.handling.get(cause, "normal") != "normal" or cause == "infrastructure":
        return weights
    if recipe.only_answered and not rollout.answered:
        return weights
    scores = recipe.scorer(trajectory_of(rollout))
    spans = [slice(turn.start, turn.end) for turn in rollout.turns]
    n = np.array([mask[span].sum() if s is not None else 0.0 for span, s in zip(spans, scores, strict=True)])
    s = np.array([0.0 if score is None else score for score in scores])
    if n.sum() == 0 or (n * s).sum() == 0:
        return weights
    a = s / ((n * s).sum() / n.sum())
    if advantage < 0:
        a = np.maximum(2 - a, 0.1)
        a *= n.sum() / (n * a).sum()
    for span, score, value in zip(spans, scores, a, strict=True):
        if score is not None:
            weights[span] = value
    return weights


def policy(nano: Path, adapter: Mapping[str, Tensor]) -> PeftModel:
    """The nano model with these adapter weights, through PEFT's own layers."""
    model, _ = BaseModel(str(nano), "float32").load()
    model.requires_grad_(False)
    tuned = get_peft_model(model, lora_config(LORA))
    known = dict(tuned.named_parameters())
    with torch.no_grad():
        for name, value in adapter.items():
            known[name].copy_(value)
    assert isinstance(tuned, PeftModel)
    return tuned.train()


def logprobs(model: torch.nn.Module, rollout: Rollout) -> Tensor:
    """(C,) of each completion token given all before it."""
    ids = torch.tensor(rollout.prompt_ids + rollout.completion_ids)
    log_p = torch.log_softmax(model(input_ids=ids[None]).logits[0].float(), -1)
    first = len(rollout.prompt_ids)
    return log_p[first - 1 : -1].gather(1, ids[first:, None])[:, 0]


@dataclass
class Update:
    loss: float
    gradients: dict[str, Tensor]
    old: list[Tensor | None]  # (C,) log-probabilities of each rollout before the update
    clipped: int  # tokens at which the clip took effect
    masked: int  # sampled tokens that are not in the loss
    weights: list[np.ndarray]
    advantages: np.ndarray
    kl: float  # k3, mean over the tokens in the loss


def update(
    model: PeftModel,
    rollouts: Sequence[Rollout],
    size: int,
    recipe: Recipe,
    old: Sequence[Tensor | None] | None = None,
) -> Update:
    """Loss and gradient of the whole batch. old: log-probabilities at the batch's first update; None is now."""
    pairs = [governed(rollout, recipe) for rollout in rollouts]
    rewards = np.array([reward for _, reward in pairs])
    masks = [mask for mask, _ in pairs]
    if recipe.drop_dead:
        for start in range(0, len(rollouts), size):
            group = rewards[start : start + size]
            if len(set(group[~np.isnan(group)])) < 2:
                masks[start : start + size] = [np.zeros_like(mask) for mask in masks[start : start + size]]
    shaped = advantages(rollouts, rewards, size, recipe)
    weights = [token_weights(r, m, a, recipe) for r, m, a in zip(rollouts, masks, shaped, strict=True)]
    tokens = sum(mask.sum() for mask in masks)
    kept = sum(1 for mask in masks if mask.any())
    divisor = kept if recipe.in_loss else len(rollouts)
    total = torch.zeros(())
    before: list[Tensor | None] = []
    clipped, divergence = 0, 0.0
    for index, (rollout, mask) in enumerate(zip(rollouts, masks, strict=True)):
        if not rollout.completion_ids:
            before.append(None)
            continue
        now = logprobs(model, rollout)
        before.append(now.detach())
        if not mask.any():
            continue
        m = torch.tensor(mask, dtype=torch.float32)
        first = old[index] if old is not None else now.detach()
        assert first is not None
        ratio = torch.exp(now - first)
        if recipe.sequence_ratio:
            ratio = torch.exp(((now - first) * m).sum() / m.sum()).expand_as(now)
        advantage = float(shaped[index])
        if recipe.correction is not None:
            rho = math.exp(float(((first - torch.tensor(rollout.logprobs)) * m).sum()))
            advantage *= rho if recipe.correction[0] <= rho <= recipe.correction[1] else 0.0
        low, high = recipe.clip
        term = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
        clipped += int(((term < ratio * advantage) * m).sum())
        policy_term = -torch.tensor(weights[index], dtype=torch.float32) * term
        with torch.no_grad(), model.disable_adapter():
            reference = logprobs(model, rollout)
        d = reference - now
        divergence += float(((torch.exp(d) - d - 1) * m).sum().detach())
        kl = 0.5 * d**2 if recipe.kl_estimator == "k2" else torch.exp(d) - d - 1
        if recipe.kl_estimator == "k3_corrected":
            kl = kl * ratio
        value = ((policy_term + recipe.kl * kl) * m).sum()
        total = total + {
            "grpo": lambda v, c: v / max(1.0, c) / divisor,
            "dapo": lambda v, c: v / tokens,
            "bnpo": lambda v, c: v / tokens,
            "dr_grpo": lambda v, c: v / (divisor * recipe.longest),
        }[recipe.loss_type](value, float(m.sum()))
    gradients: dict[str, Tensor] = {}
    if total.requires_grad:
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
        gradients = {n: g for n, g in zip(parameters, found, strict=True) if g is not None}
    masked = int(sum(sum(rollout.loss_mask) for rollout in rollouts) - tokens)
    return Update(float(total.detach()), gradients, before, clipped, masked, weights, shaped, divergence / tokens)


def close(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], tolerance: float = 1e-5) -> tuple[float, float]:
    """(largest difference, largest wanted value), after checking that every gradient is within tolerance."""
    worst, largest = 0.0, 0.0
    for name, gradient in wanted.items():
        worst = max(worst, float((found[name] - gradient).abs().max()))
        largest = max(largest, float(gradient.abs().max()))
    assert worst <= tolerance, (worst, largest)
    return worst, largest
