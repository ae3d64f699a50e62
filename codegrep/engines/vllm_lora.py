"""LoRA products of vLLM on a CPU, as matrix products instead of one copy of the adapter a token.

vLLM's own path for CPUs (`PunicaWrapperCPU`, plain PyTorch operations) looks up the adapter of every token by
indexing, which copies A and B once for each token of the step, A in float32. For a prompt of 2,048 tokens, rank 32 and
a hidden size of 576 that is about 150 MB for one A and up to 400 MB for the widest, some 60 GB for the whole model
and step, in memory that the system has to hand out anew each time. On a machine with free cores it is slow; where all
cores are busy the engine looks as if it had stalled, with most of its time spent in the kernel. docs/engines.md has
the measurement.

Here tokens that follow one another with the same adapter, in training all of them, go through one product.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

NAME = "codegrep.engines.vllm_lora.SegmentedLora"


class SegmentedLora(PunicaWrapperCPU):  # type: ignore[misc]
    """Linear layers by runs of equal adapters. Embeddings and the output head stay with vLLM: they are no targets."""

    _runs: tuple[tuple[int, int, int], ...] = ()

    def update_metadata(self, *args: Any, **kwargs: Any) -> None:
        """Called once a step with the adapter of every token."""
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
        **kwargs: Any,
    ) -> None:
        """y += scale * (x Aᵀ) Bᵀ for each slice of the layer, in place.

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
