"""Measures LoRA on a CPU in vLLM: its own products against this project's, on one layer (needs vLLM).

    python scripts/bench/lora_cpu.py --quick

One `down_proj` of SmolLM2-135M with rank 32, a step of prompt tokens. The last line is one JSON object: ratios of wall
time and of page faults, and the share of time that vLLM's own products spend in the kernel.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

HIDDEN, WIDE, RANK = 576, 1536, 32


@dataclass(frozen=True)
class Cost:
    """Of one call: wall, user and system seconds, and page faults without reading."""

    wall: float
    user: float
    system: float
    faults: int


def cost(work: Callable[[], Any], times: int) -> Cost:
    """Return the mean of some calls."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for _ in range(times):
        work()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return Cost(
        wall / times,
        (after.ru_utime - before.ru_utime) / times,
        (after.ru_stime - before.ru_stime) / times,
        (after.ru_minflt - before.ru_minflt) // times,
    )


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two calls each instead of ten")
    parser.add_argument("--tokens", type=int, default=2048, help="of one step")
    options = parser.parse_args()
    from vllm.lora.layers import LoRAMapping
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    from codegrep.engines.cpu.vllm_kernels import SegmentedLora

    tokens, times = options.tokens, 2 if options.quick else 10
    a = (torch.randn(1, 1, RANK, WIDE, dtype=torch.bfloat16),)
    b = (torch.randn(1, 1, HIDDEN, RANK, dtype=torch.bfloat16),)
    x, y = torch.randn(tokens, WIDE, dtype=torch.bfloat16), torch.randn(tokens, HIDDEN, dtype=torch.bfloat16)
    costs = {}
    for name, kind in (("own", PunicaWrapperCPU), ("segmented", SegmentedLora)):
        wrapper = kind(tokens, 8, "cpu")
        wrapper.update_metadata(LoRAMapping((1,) * tokens, (1,), is_prefill=True), [1], 1, 100)

        def product(wrapper: Any = wrapper) -> None:
            wrapper.add_lora_linear(y.clone(), x, a, b, 1.0, (HIDDEN,))

        product()
        costs[name] = cost(product, times)
        c = costs[name]
        print(f"{name}: {c.wall * 1000:.1f} ms a call, user {c.user:.3f} s, system {c.system:.3f} s, {c.faults} faults")
    own, ours = costs["own"], costs["segmented"]
    print(
        json.dumps(
            {
                "lora_wall_ratio": round(own.wall / ours.wall, 1),
                "lora_cpu_ratio": round((own.user + own.system) / max(1e-6, ours.user + ours.system), 1),
                "own_page_faults": own.faults,
                "segmented_page_faults": ours.faults,
                "own_system_share": round(own.system / max(1e-6, own.user + own.system), 3),
                "tokens": tokens,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
