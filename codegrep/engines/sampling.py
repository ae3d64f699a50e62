"""Sample next tokens for rows with different settings, with raw log-probabilities.

Filters apply in the usual order: temperature, top-k, then top-p over what is left. Raw log-probabilities are taken
before all three, as a policy ratio needs them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from codegrep.engines.engine import Sampling
from codegrep.errors import InfrastructureError

# The nucleus is looked for among this many tokens first: sorting the whole vocabulary makes top-p slow.
NUCLEUS_WINDOW = 512


def draw(
    logits: torch.Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]
) -> tuple[list[int], list[float]]:
    """Sample one token for each row.

    Args:
        logits: (B, V), any float dtype.
        samplings: B settings; max_tokens is not used.
        uniforms: B numbers in [0, 1); the same number gives the same token whatever else is in the batch.

    Returns:
        B ids and B raw log-probabilities in nats.

    Raises:
        InfrastructureError: the logits hold NaN or infinity.
    """
    logits = logits.float()
    normaliser = torch.logsumexp(logits, dim=-1)
    if not bool(torch.isfinite(normaliser).all()):
        raise InfrastructureError("the model's logits are not finite", "Check the weights and the dtype")
    ids = logits.argmax(dim=-1)
    groups: dict[tuple[bool, bool], list[int]] = {}
    for row, sampling in enumerate(samplings):
        if sampling.temperature > 0:
            groups.setdefault((sampling.top_k > 0, sampling.top_p < 1), []).append(row)
    for (limited, nucleus), rows in groups.items():
        index = torch.tensor(rows, device=logits.device)
        settings = [samplings[row] for row in rows]
        temperature = logits.new_tensor([s.temperature for s in settings])[:, None]
        points = torch.tensor([uniforms[row] for row in rows], dtype=torch.float64, device=logits.device)[:, None]
        scaled = logits[index] / temperature
        if limited:
            ids[index] = _draw_limited(scaled, settings, points)
        elif nucleus:
            ids[index] = _draw_nucleus(scaled, settings, points)
        else:
            ids[index] = _invert(torch.softmax(scaled, dim=-1), points)
    logprobs = logits.gather(1, ids[:, None])[:, 0] - normaliser
    return ids.tolist(), logprobs.tolist()


def _draw_limited(scaled: torch.Tensor, settings: Sequence[Sampling], points: torch.Tensor) -> torch.Tensor:
    limits = torch.tensor([s.top_k for s in settings], device=scaled.device)[:, None]
    values, order = scaled.topk(min(int(limits.max()), scaled.shape[-1]), dim=-1)
    ranks = torch.arange(values.shape[-1], device=scaled.device)[None]
    probabilities = torch.softmax(values.masked_fill(ranks >= limits, float("-inf")), dim=-1)
    return order.gather(1, _invert(_nucleus(probabilities, settings), points)[:, None])[:, 0]


def _draw_nucleus(scaled: torch.Tensor, settings: Sequence[Sampling], points: torch.Tensor) -> torch.Tensor:
    total = torch.logsumexp(scaled, dim=-1, keepdim=True)
    values, order = scaled.topk(min(NUCLEUS_WINDOW, scaled.shape[-1]), dim=-1)
    probabilities = torch.exp(values - total)
    mass = scaled.new_tensor([s.top_p for s in settings])
    if bool((probabilities.sum(dim=-1) < mass).any()):
        values, order = scaled.sort(dim=-1, descending=True)
        probabilities = torch.exp(values - total)
    return order.gather(1, _invert(_nucleus(probabilities, settings), points)[:, None])[:, 0]


def _nucleus(probabilities: torch.Tensor, settings: Sequence[Sampling]) -> torch.Tensor:
    """Set probabilities outside the smallest set that reaches top_p to 0; the first token always stays."""
    mass = probabilities.new_tensor([s.top_p for s in settings])[:, None]
    before = probabilities.cumsum(dim=-1) - probabilities
    dropped = (before >= mass) & (mass < 1)
    dropped[:, 0] = False
    return probabilities.masked_fill(dropped, 0.0)


def _invert(probabilities: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Return the indices at which the cumulative distribution passes `points` of its total."""
    cumulative = probabilities.double().cumsum(dim=-1)
    # right=True steps over tokens of probability 0, whose cumulative value equals that of the token before them
    index = torch.searchsorted(cumulative, points * cumulative[:, -1:], right=True)[:, 0]
    last = (probabilities > 0).int().cumsum(dim=-1).argmax(dim=-1)
    return torch.minimum(index, last)
