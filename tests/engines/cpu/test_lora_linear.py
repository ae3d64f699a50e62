"""The fused LoRA product computes what PEFT does, and follows its adapter."""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear as LoraLinear

from codegrep.engines.cpu.lora_linear import use_fused_lora


class Net(torch.nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.proj = torch.nn.Linear(24, 40, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x)


def layer_of(bias: bool, dtype: torch.dtype) -> tuple[torch.nn.Module, LoraLinear]:
    torch.manual_seed(0)
    model = get_peft_model(Net(bias).to(dtype), LoraConfig(r=4, lora_alpha=8, target_modules=["proj"]))
    layer = next(m for m in model.modules() if isinstance(m, LoraLinear))
    for part in (layer.lora_A["default"], layer.lora_B["default"]):
        part.weight.data = torch.randn_like(part.weight, dtype=torch.float32)
    return model, layer


def test_generation_computes_what_training_does() -> None:
    for bias in (True, False):
        model, _ = layer_of(bias, torch.float32)
        x = torch.randn(2, 3, 24)
        wanted = model(x)  # PEFT's own
        assert use_fused_lora(model) == 1
        trained = model(x)
        with torch.no_grad():
            generated = model(x)
        torch.testing.assert_close(trained, wanted)
        torch.testing.assert_close(generated, wanted)


def test_it_follows_an_optimiser_step_and_a_loaded_adapter() -> None:
    model, layer = layer_of(False, torch.bfloat16)
    use_fused_lora(model)
    x = torch.randn(5, 24).bfloat16()
    with torch.no_grad():
        before = model(x)
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(x).float().square().mean().backward()
    optimiser.step()
    with torch.no_grad():
        after = model(x)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, model(x), rtol=2e-2, atol=2e-1)
    with torch.no_grad():
        layer.lora_B["default"].weight.zero_()
        torch.testing.assert_close(model(x), layer.base_layer(x))


def test_the_adapter_off_is_the_base() -> None:
    model, layer = layer_of(False, torch.float32)
    use_fused_lora(model)
    x = torch.randn(5, 24)
    with torch.no_grad():
        model(x)
        with model.disable_adapter():
            torch.testing.assert_close(model(x), layer.base_layer(x))


def test_it_follows_a_fused_optimiser_which_raises_no_counter() -> None:
    model, layer = layer_of(False, torch.float32)
    use_fused_lora(model)
    x = torch.randn(5, 24)
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, fused=True)
    for _ in range(3):
        with torch.no_grad():
            model(x)
        model(x).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
        low = x @ layer.lora_A["default"].weight.T @ layer.lora_B["default"].weight.T * layer.scaling["default"]
        with torch.no_grad():
            torch.testing.assert_close(model(x), layer.base_layer(x) + low)
