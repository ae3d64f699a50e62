"""The dtype of a model's weights on this machine."""

from __future__ import annotations

from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # the last one on Arm


def resolve_dtype(dtype: str, use_gpu: bool) -> str:
    """Replace "auto" by "bfloat16" on a GPU or a CPU that multiplies bfloat16, else by "float32".

    On a CPU without such instructions a bfloat16 product of a backward pass takes 20 times as long as a float32 one.
    """
    if dtype != "auto":
        return dtype
    return "bfloat16" if use_gpu or has_native_bfloat16() else "float32"


def has_native_bfloat16(cpu_info: Path = _CPU_INFO) -> bool:
    """Return whether this machine's CPU has bfloat16 matrix instructions (AVX512-bf16, AMX, or Arm's)."""
    if not cpu_info.is_file():
        return False
    lines = cpu_info.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not _BFLOAT16_FLAGS.isdisjoint(flags.split())
