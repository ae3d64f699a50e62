"""Decoding attention that does not copy keys and values to the number of query heads.

With grouped-query attention and a padding mask, transformers repeats keys and values for each group of query heads,
which copies the whole cache in every layer at every step. Folding the group into the query length gives the same
product without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from codegrep.engines.cpu import attention, on_cpu

NAME = "codegrep_folded"


def folded_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as SDPA does: query (B, Hq, Q, D), key and value (B, Hkv, T, D), mask (B, 1, Q, T) or None."""
    groups = query.shape[1] // key.shape[1]
    if query.shape[2] != 1 or groups == 1 or kwargs.get("position_bias") is not None or kwargs.get("dropout"):
        output: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output
    batch, heads, _, width = query.shape
    folded = query.view(batch, key.shape[1], groups, width)
    attended = scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling"))
    return attended.reshape(batch, 1, heads, value.shape[-1]), None


@contextmanager
def folded(model: Any) -> Iterator[None]:
    """Within, let a model on a CPU compute attention by SDPA with folded heads."""
    if not on_cpu(model):
        yield
        return
    ALL_ATTENTION_FUNCTIONS.register(NAME, folded_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
    with attention(model.config, NAME):
        yield
