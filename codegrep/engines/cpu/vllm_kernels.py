"""LoRA products and top-k with top-p for vLLM on a CPU, in place of vLLM's own."""

from __future__ import annotations

from typing import Any, cast

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.v1.sample.ops import topk_topp_sampler
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

SEGMENTED_LORA = "codegrep.engines.cpu.vllm_kernels.SegmentedLora"


class SegmentedLora(PunicaWrapperCPU):  # type: ignore[misc]
    """LoRA products of linear layers by runs of tokens with the same adapter; in training, one run.

    vLLM's own products for CPUs copy A and B once for every token of a step, A in float32: some 60 GB for a step of
    2,048 prompt tokens of SmolLM2-135M at rank 32 (docs/engines.md).
    """

    _runs: tuple[tuple[int, int, int], ...] = ()

    def update_metadata(self, *args: Any, **kwargs: Any) -> None:
        """Take the adapter of every token; called once a step."""
        super().update_metadata(*args, **kwargs)
        slots, counts = torch.unique_consecutive(self.token_lora_indices, return_counts=True)
        runs, begin = [], 0
        for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
            if slot >= 0:  # -1: tokens of the base model
                runs.append((begin, begin + count, slot))
            begin += count
        self._runs = tuple(runs)

    def add_lora_linear(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        lora_a_stacked: tuple[torch.Tensor, ...],
        lora_b_stacked: tuple[torch.Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        **_kwargs: Any,
    ) -> None:
        """Add scale * (x Aᵀ) Bᵀ to y in place, for each slice of the layer.

        Shapes: y (tokens, sum of output_slices), x (tokens, in), A (slots, 1, r, in), B (slots, 1, out, r).
        """
        y, x = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
        for begin, end, slot in self._runs:
            rows, offset = x[begin:end], 0
            for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
                hidden = torch.mm(rows.to(a.dtype), a[slot, 0].t())
                y[begin:end, offset : offset + width].addmm_(
                    hidden.to(y.dtype), b[slot, 0].t().to(y.dtype), alpha=scale
                )
                offset += width


def limit(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Set logits outside top-k, and then outside top-p of what is left, to minus infinity in place.

    vLLM's own code for CPUs sorts every row of the vocabulary for top-p; with top-k, top-p chooses among the k largest,
    which need no full sort. Equal to vLLM's but for ties at the k-th place.

    Shapes: logits (B, V); k (B,), V where a row has no top-k; p (B,).
    """
    if k is None or p is None or int(k.max()) >= logits.shape[-1]:
        return cast(torch.Tensor, apply_top_k_top_p_pytorch(logits, k, p, allow_cpu_sync=True))
    values, index = logits.topk(int(k.max()), dim=-1)
    ranks = torch.arange(values.shape[-1], device=logits.device)[None]
    values = values.masked_fill(ranks >= k[:, None], -torch.inf)
    probabilities = values.softmax(dim=-1)
    # A token falls out when those above it already hold p.
    dropped = probabilities.cumsum(dim=-1) - probabilities >= p[:, None]
    dropped[:, 0] = False
    return logits.fill_(-torch.inf).scatter_(-1, index, values.masked_fill_(dropped, -torch.inf))


def use_limit() -> None:
    """Let vLLM's sampler in this process use `limit`."""
    topk_topp_sampler.apply_top_k_top_p = limit
