"""Top-k and top-p for vLLM on a CPU without sorting the vocabulary.

vLLM's own way for CPUs sorts every row of the logits as soon as top-p is used: 64 sequences of a model with 49,152
tokens cost more than the model itself. With top-k, what top-p can choose from is among the k largest, which can be
found without a sort.
"""

from __future__ import annotations

import torch
from vllm.v1.sample.ops import topk_topp_sampler
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch


def limit(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Logits with everything outside top-k, and then outside top-p of what is left, at minus infinity; in place.

    Equal to vLLM's but for ties at the k-th place.

    Shapes: logits (B, V); k (B,), V where a row has no top-k; p (B,).
    """
    if k is None or p is None or int(k.max()) >= logits.shape[-1]:
        return apply_top_k_top_p_pytorch(logits, k, p, allow_cpu_sync=True)
    values, index = logits.topk(int(k.max()), dim=-1)
    ranks = torch.arange(values.shape[-1], device=logits.device)[None]
    values = values.masked_fill(ranks >= k[:, None], -torch.inf)
    probabilities = values.softmax(dim=-1)
    # A token falls out when those above it already hold p.
    dropped = probabilities.cumsum(dim=-1) - probabilities >= p[:, None]
    dropped[:, 0] = False
    return logits.fill_(-torch.inf).scatter_(-1, index, values.masked_fill_(dropped, -torch.inf))


def use_limit() -> None:
    """Let vLLM's sampler of this process use it."""
    topk_topp_sampler.apply_top_k_top_p = limit
