"""Causal attention on a CPU in bfloat16, with a backward pass that uses matrix instructions.

PyTorch's CPU kernel has a fast forward pass, which is kept, and a slow backward pass. Here the backward pass is blocks
of matrix products, which run on AMX or AVX512-bf16 and skip what causality hides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from codegrep.engines.cpu import attention, on_cpu

NAME = "codegrep_causal"
_BLOCK = 128  # queries of one matrix product
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@contextmanager
def causal_attention(model: PreTrainedModel) -> Iterator[None]:
    """Within, let a bfloat16 model on a CPU attend causally to all keys, without a padding mask.

    Query i sees the keys up to (keys - queries + i), so sequences must have no left padding. A model with sliding
    windows keeps its own attention.
    """
    config = model.config.get_text_config()
    windows = getattr(config, "sliding_window", None) or "sliding_attention" in (
        getattr(config, "layer_types", None) or ()
    )
    if not on_cpu(model) or model.dtype != torch.bfloat16 or windows:
        yield
        return
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, lambda *_args, **_kwargs: None)
    with attention(config, NAME):
        yield


def _attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attend as transformers does: query (B, Hq, Q, D), key and value (B, Hk, K, D) -> (B, Q, Hq, D)."""
    plain = attention_mask is None and not kwargs.get("dropout") and kwargs.get("position_bias") is None
    if not plain or query.shape[-1] != value.shape[-1]:
        if query.shape[2] != key.shape[2]:
            raise NotImplementedError("this model's attention needs a mask, which causal_attention does not make")
        output: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    return CausalAttention.apply(query, key, value, scale).transpose(1, 2), None  # type: ignore[no-untyped-call]


class CausalAttention(torch.autograd.Function):
    """softmax(q kᵀ · scale, causal) v for grouped queries, where the last query sees all keys.

    Shapes: q (B, Hq, Q, D), k and v (B, Hk, K, D) with Hq a multiple of Hk and Q <= K.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Return the attention (B, Hq, Q, D)."""
        past = k.shape[2] - q.shape[2]
        out: Tensor
        out, lse = _flash(q, k[:, :, past:], v[:, :, past:], 0.0, True, scale=scale)
        if past:
            # Attention over past keys and over new ones are combined by their normalisers.
            early, early_lse = _flash(q, k[:, :, :past], v[:, :, :past], 0.0, False, scale=scale)
            both = torch.logaddexp(lse, early_lse)
            out = (out * (lse - both).exp()[..., None] + early * (early_lse - both).exp()[..., None]).to(q.dtype)
            lse = both
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients to q, k and v."""
        q, k, v, out, lse = ctx.saved_tensors
        dq = torch.empty_like(q)
        dk, dv = torch.zeros(k.shape, dtype=torch.float32), torch.zeros(v.shape, dtype=torch.float32)
        delta = (grad.float() * out.float()).sum(-1)  # (B, Hq, Q)
        with _bf16_products():
            for row in range(len(q)):
                for start in range(0, q.shape[2], _BLOCK):
                    part = slice(start, start + _BLOCK)
                    dq[row, :, part] = _block(
                        q[row, :, part], k[row], v[row], grad[row, :, part], lse[row, :, part], delta[row, :, part],
                        dk[row], dv[row], k.shape[2] - q.shape[2] + start, ctx.scale,
                    )  # fmt: skip
        return dq, dk.to(k.dtype), dv.to(v.dtype), None


def _block(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad: Tensor,
    lse: Tensor,
    delta: Tensor,
    dk: Tensor,
    dv: Tensor,
    before: int,
    scale: float,
) -> Tensor:
    """Return the gradient to one sequence's block of queries, and add to dk and dv.

    q and grad (Hq, n, D), lse and delta (Hq, n), the rest (Hk, K, D). The block's first query sees before + 1 keys.
    """
    heads, count, width = q.shape
    groups, seen = heads // len(k), before + count
    k, v = k[:, :seen], v[:, :seen]

    def fold(x: Tensor) -> Tensor:  # join the queries of one key head: (Hk, groups · n, …)
        return x.reshape(len(k), groups * count, *x.shape[2:])

    q, grad = fold(q), fold(grad)
    # bfloat16 inputs, float32 sums and results: exact products, and no rounding before the exponential.
    p = torch.bmm(q.float(), k.float().transpose(1, 2)).mul_(scale).sub_(fold(lse)[..., None]).exp_()
    hidden = torch.ones(count, count, dtype=torch.bool).triu_(1)
    p.view(len(k), groups, count, seen)[..., before:].masked_fill_(hidden, 0.0)
    p16 = p.to(q.dtype)
    dv[:, :seen] += torch.bmm(p16.transpose(1, 2), grad)
    ds = torch.bmm(grad.float(), v.float().transpose(1, 2)).sub_(fold(delta)[..., None]).mul_(p)
    ds16 = ds.to(q.dtype)
    dk[:, :seen] += torch.bmm(ds16.transpose(1, 2), q).mul_(scale)
    return torch.bmm(ds16, k).mul_(scale).view(heads, count, width)


@contextmanager
def _bf16_products() -> Iterator[None]:
    """Within, products of float32 tensors round their inputs to bfloat16 (here they already are) and sum in float32."""
    setting: Any = cast(Any, torch.backends.mkldnn).matmul
    before = setting.fp32_precision
    setting.fp32_precision = "bf16"
    try:
        yield
    finally:
        setting.fp32_precision = before
