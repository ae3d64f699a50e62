from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from codegrep.engines.cpu.causal_attention import CausalAttention, causal_attention
from codegrep.engines.models import load_model, provide


def _exact(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> list[Tensor]:
    """Output and gradients in float64."""
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    groups = q.shape[1] // k.shape[1]
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    keys, values = (x.repeat_interleave(groups, 1) for x in wide[1:])
    out = scaled_dot_product_attention(wide[0], keys, values, attn_mask=mask)
    return [out, *torch.autograd.grad(out, wide, grad.double())]


@pytest.mark.parametrize("queries, keys", [(1, 1), (7, 7), (200, 200), (1, 30), (130, 300), (256, 256)])
@pytest.mark.parametrize("heads, key_heads", [(9, 3), (4, 4)])
def test_output_and_gradients_are_those_of_attention(queries: int, keys: int, heads: int, key_heads: int) -> None:
    generator = torch.Generator().manual_seed(queries + keys)
    shapes = [(2, heads, queries, 32), (2, key_heads, keys, 32), (2, key_heads, keys, 32), (2, heads, queries, 32)]
    q, k, v, grad = (torch.randn(shape, generator=generator).bfloat16() for shape in shapes)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = CausalAttention.apply(q, k, v, 32**-0.5)
    found = [out, *torch.autograd.grad(out, leaves, grad)]
    for own, exact in zip(found, _exact(q, k, v, grad), strict=True):
        if exact.norm() > 1e-9:
            assert (own.double() - exact).norm() / exact.norm() < 0.01
        else:
            assert own.norm() < 1e-2  # one key: the softmax has no gradient


def test_setting_of_products_and_model_is_put_back() -> None:
    model = load_model(provide("provided:nano"), "bfloat16")
    before = (model.config._attn_implementation, torch.backends.mkldnn.matmul.fp32_precision)
    ids = torch.arange(5, 25)[None]
    with causal_attention(model):
        states = model.base_model(input_ids=ids).last_hidden_state
    states.sum().backward()
    assert (model.config._attn_implementation, torch.backends.mkldnn.matmul.fp32_precision) == before
    plain = model.base_model(input_ids=ids).last_hidden_state
    assert (states.float() - plain.float()).norm() / plain.float().norm() < 0.02


def test_float32_is_left_alone() -> None:
    model = load_model(provide("provided:nano"), "float32")
    with causal_attention(model):
        assert model.config._attn_implementation == "sdpa"
