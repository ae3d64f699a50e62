"""A linear layer with LoRA as one differentiable operation.

PEFT computes base(x) + B(A(x))·s in separate operations; with a bfloat16 base and a float32 adapter it copies every
activation to float32 and back, twice, which costs more than the products on a CPU. Here activations keep the base's
dtype; the small matrices A and B are cast instead, and their gradients come back in float32.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor

from codegrep.engines.cpu import on_cpu


def use_fused_lora(model: torch.nn.Module) -> int:
    """Let LoRA layers of a model on a CPU use the fused product; return how many do.

    PEFT's own code still runs with the adapter off or merged, dropout in training, several active adapters, LoRA
    variants and mixed batches.
    """
    layers = [m for m in model.modules() if type(m) is LoraLinear and type(m.base_layer) is torch.nn.Linear]
    layers = [layer for layer in layers if on_cpu(layer.base_layer.weight)]
    for layer in layers:
        layer.forward = types.MethodType(_forward, layer)  # type: ignore[method-assign]
    return len(layers)


def _forward(layer: LoraLinear, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if args or kwargs or layer.disable_adapters or layer.merged or len(layer.active_adapters) != 1:
        return LoraLinear.forward(layer, x, *args, **kwargs)
    name = layer.active_adapters[0]
    dropout = layer.lora_dropout[name] if name in layer.lora_A else None
    if dropout is None or name in layer.lora_variant or layer.lora_bias.get(name, False):
        return LoraLinear.forward(layer, x)
    if layer.training and not isinstance(dropout, torch.nn.Identity) and getattr(dropout, "p", 1.0) > 0:
        return LoraLinear.forward(layer, x)
    base = layer.base_layer
    if x.dtype != base.weight.dtype or base.weight.requires_grad or torch.is_autocast_enabled("cpu"):
        return LoraLinear.forward(layer, x)
    result: Tensor = _LoraProduct.apply(  # type: ignore[no-untyped-call]
        x, base.weight, base.bias, layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name]
    )
    return result


class _LoraProduct(torch.autograd.Function):
    """y = x Wᵀ + bias + s · x Aᵀ Bᵀ with W and bias frozen.

    Shapes: x (..., in), W (out, in), bias (out,) or None, A (r, in), B (out, r); y (..., out).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        a_cast, b_cast = a.to(x.dtype), (b * scale).to(x.dtype)
        low = rows @ a_cast.T
        y = rows @ weight.T if bias is None else torch.addmm(bias, rows, weight.T)
        y.addmm_(low, b_cast.T)
        ctx.save_for_backward(rows, weight, a_cast, b_cast, low)
        ctx.scale, ctx.shape, ctx.dtypes = scale, x.shape, (a.dtype, b.dtype)
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, Tensor, Tensor, None]:
        rows, weight, a, b, low = ctx.saved_tensors
        grad_rows = grad.reshape(-1, grad.shape[-1])
        grad_low = grad_rows @ b
        grad_a = (grad_low.T @ rows).to(ctx.dtypes[0])
        grad_b = (grad_rows.T @ low).to(ctx.dtypes[1]) * ctx.scale
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_rows @ weight
            grad_x.addmm_(grad_low, a)
            grad_x = grad_x.view(ctx.shape)
        return grad_x, None, None, grad_a, grad_b, None
