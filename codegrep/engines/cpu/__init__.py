"""What makes training and generation on a CPU fast enough. Nothing here runs on a GPU: `on_cpu` is the one switch.

What each kernel is worth, measured on two cores with SmolLM2-135M:

- `causal_attention`: PyTorch's backward pass of bfloat16 attention was a third of a training step.
- `lora_linear`: no casts of activations to float32 and back, which cost more than the products of a LoRA layer in
  bfloat16; in float32 it neither saves nor costs anything.
- `folded_attention`: decoding attention for 16 rows of 1,000 tokens takes a third of the time; decoding 8 rows of 600
  tokens takes two thirds of the processor time in all (float32).
- `vllm_kernels`: a LoRA layer of a 2,048-token step takes 3.9 ms instead of 742 ms; sampling with top-k and top-p no
  longer costs more than the model at 64 sequences.

Importing this package imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

_CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last one on Arm


def on_cpu(model: Any) -> bool:
    """Return whether a model or tensor lies on a CPU, where this package replaces the libraries' kernels."""
    return bool(model.device.type == "cpu")


Dtype = Literal["auto", "bfloat16", "float32"]


def resolve_dtype(dtype: Dtype, *, use_gpu: bool, all_weights: bool) -> Dtype:
    """Replace "auto" by "float32" to train all weights or on a CPU without bfloat16 products, else by "bfloat16".

    On a CPU without such instructions a bfloat16 product of a backward pass takes 20 times as long as a float32 one.
    """
    if dtype != "auto":
        return dtype
    return "bfloat16" if not all_weights and (use_gpu or has_native_bfloat16()) else "float32"


def has_native_bfloat16(cpu_info: Path = _CPU_INFO) -> bool:
    """Return whether this machine's CPU has bfloat16 matrix instructions (AVX512-bf16, AMX, or Arm's)."""
    if not cpu_info.is_file():
        return False
    lines = cpu_info.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not _BFLOAT16_FLAGS.isdisjoint(flags.split())


@contextmanager
def attention(config: Any, name: str) -> Iterator[None]:
    """Within, let a model of this configuration attend by the registered function of that name."""
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before
