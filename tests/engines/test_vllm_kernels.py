"""What replaces vLLM's own operations on a CPU gives what they give."""

from __future__ import annotations

import importlib.util
import inspect

import pytest
import torch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (make cpu-engine installs it)"
)


def test_top_k_and_top_p_are_vllms() -> None:
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    from codegrep.engines.cpu.vllm_kernels import limit

    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(16, 5000, generator=generator)
    k = torch.tensor([1, 2, 3, 50, 50, 50, 50, 7] * 2)
    p = torch.tensor([0.9] * 8 + [0.01, 0.5, 1.0, 0.3, 0.99, 1.0, 0.9, 0.7])
    for limits in ((k, p), (torch.full((16,), 5000), p), (k, None), (None, p)):
        torch.testing.assert_close(limit(logits.clone(), *limits), apply_top_k_top_p_pytorch(logits.clone(), *limits))


def test_lora_by_runs_is_vllms_lora_by_tokens() -> None:
    from vllm.lora.layers import LoRAMapping
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    from codegrep.engines.cpu.vllm_kernels import SegmentedLora

    generator = torch.Generator().manual_seed(2)
    a = tuple(torch.randn(2, 1, 4, 24, generator=generator) for _ in range(2))
    b = tuple(torch.randn(2, 1, width, 4, generator=generator) for width in (8, 12))
    x, y = torch.randn(9, 24, generator=generator), torch.randn(9, 20, generator=generator)
    made = []
    # tokens of adapters 1 and 2, in runs
    tokens = (1, 1, 1, 2, 2, 1, 1, 2, 2)
    for kind in (PunicaWrapperCPU, SegmentedLora):
        wrapper = kind(16, 4, "cpu")
        mapping = LoRAMapping(tokens, (1, 2, 1), is_prefill=True)
        wrapper.update_metadata(mapping, [1, 2], 2, 100)
        out = y.clone()
        wrapper.add_lora_linear(out, x, a, b, 1.0, (8, 12))
        made.append(out)
    torch.testing.assert_close(made[0], made[1], rtol=1e-4, atol=1e-4)
    wrapper.update_metadata(LoRAMapping((0,) * 9, (0, 0, 0), is_prefill=True), [1, 2], 2, 100)
    out = y.clone()
    wrapper.add_lora_linear(out, x, a, b, 1.0, (8, 12))
    assert torch.equal(out, y)  # the base alone


def test_what_is_replaced_is_still_there() -> None:
    from vllm.lora.punica_wrapper import punica_selector
    from vllm.v1.sample.ops import topk_topp_sampler
    from vllm.v1.worker import worker_base

    assert "current_platform.get_punica_wrapper()" in inspect.getsource(punica_selector)
    assert "apply_top_k_top_p(logits, k, p)" in inspect.getsource(topk_topp_sampler.TopKTopPSampler.forward_cpu)
    assert "worker_extension_cls" in inspect.getsource(worker_base)
