from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import get_peft_model_state_dict

from codegrep.engines.adapter import (
    AdapterPackage,
    AdapterReceipt,
    check_receipt,
    factors_sha256,
    tensors_sha256,
)
from codegrep.engines.models import load_model, provide
from codegrep.errors import InfrastructureError
from codegrep.training.lora import adapter_sha256, attach_lora, package_adapter
from tests.training.made_rollouts import LORA


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[AdapterPackage, Path]:
    folder = tmp_path_factory.mktemp("models")
    model = attach_lora(load_model(provide("provided:nano", folder), "float32"), LORA, seed=1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_()
    model.save_pretrained(str(folder / "saved"))
    made = package_adapter(model, 7)
    assert made.sha256 == adapter_sha256(model) == tensors_sha256(get_peft_model_state_dict(model))
    return made, folder / "saved"


def test_a_package_is_what_peft_saves(package: tuple[AdapterPackage, Path], tmp_path: Path) -> None:
    made, saved = package
    made.write(tmp_path / "sent")
    assert adapter_sha256(tmp_path / "sent") == adapter_sha256(saved) == made.sha256
    assert AdapterPackage.read(saved, 7).sha256 == made.sha256
    assert made.factors_sha256(torch.bfloat16) == AdapterPackage.read(saved).factors_sha256(torch.bfloat16)


def test_damage_on_the_way_is_seen(package: tuple[AdapterPackage, Path], tmp_path: Path) -> None:
    tensors = bytearray(package[0].tensors)
    tensors[-1] ^= 1
    with pytest.raises(InfrastructureError, match="arrived damaged"):
        replace(package[0], tensors=bytes(tensors)).write(tmp_path)
    with pytest.raises(InfrastructureError, match="holds no adapter"):
        AdapterPackage.read(tmp_path / "absent")


def test_factors_by_hand() -> None:
    a, b = torch.ones(2, 3), torch.full((4, 2), 2.0)
    names = {"m.lora_A.weight": a, "m.lora_B.weight": b}
    made = AdapterPackage.of(names, {"r": 2, "lora_alpha": 6}, 1)
    assert made.factors_sha256(torch.float32) == factors_sha256([a], [b * 3])  # alpha / r = 3
    root = AdapterPackage.of(names, {"r": 4, "lora_alpha": 6, "use_rslora": True}, 1)
    assert root.factors_sha256(torch.float32) == factors_sha256([a], [b * 3])  # alpha / sqrt(r) = 3
    assert made.factors_sha256(torch.float32) != made.factors_sha256(torch.bfloat16)
    # neither names nor order matter, contents and kind do
    other = torch.zeros(2, 3)
    assert factors_sha256([a, other], [b]) == factors_sha256([other, a], [b]) != factors_sha256([a, a], [b])
    assert factors_sha256([a], []) != factors_sha256([], [a])


def test_the_guard_fires_on_every_kind_of_difference(package: tuple[AdapterPackage, Path]) -> None:
    sent = package[0]
    good = AdapterReceipt(7, sent.sha256, sent.factors_sha256(torch.bfloat16), "bfloat16")
    check_receipt(sent, good)
    for bad in (
        replace(good, version=6),
        replace(good, sha256="0" * 64),
        replace(good, factors_sha256=""),
        replace(good, dtype="float32"),
    ):
        with pytest.raises(InfrastructureError, match="does not have the trainer's weights"):
            check_receipt(sent, bad)
