"""LoRA adapters sent to an engine, with checksums that prove that it uses them.

- `sha256` over names, dtypes, shapes and bytes shows that the file arrived whole.
- `factors_sha256` over the LoRA matrices as the engine computes with them (in its dtype, B scaled by alpha / r, in any
  layout) shows that the engine uses them: a slot with the adapter of an earlier step gives another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file, save
from torch import Tensor

from codegrep.errors import InfrastructureError

ADAPTER_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"


@dataclass(frozen=True)
class AdapterPackage:
    """One version of an adapter; picklable.

    Attributes:
        version: optimiser step after which it was taken.
        sha256: of its tensors.
        config: PEFT's adapter_config.json.
        tensors: the safetensors file.
    """

    version: int
    sha256: str
    config: str = field(repr=False)
    tensors: bytes = field(repr=False)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], config: Mapping[str, Any], version: int) -> AdapterPackage:
        """Package tensors under PEFT's names (`get_peft_model_state_dict`) with PEFT's configuration."""
        copies = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        return cls(version, tensors_sha256(copies), json.dumps(dict(config), default=_plain), save(copies))

    @classmethod
    def read(cls, folder: Path, version: int = 0) -> AdapterPackage:
        """Package an adapter that PEFT saved.

        Raises:
            InfrastructureError: the folder holds none.
        """
        try:
            tensors, config = load_file(folder / ADAPTER_FILE), (folder / CONFIG_FILE).read_text(encoding="utf-8")
            return cls.of(tensors, json.loads(config), version)
        except (OSError, ValueError) as error:
            raise InfrastructureError(f"{folder} holds no adapter that can be read: {str(error)[:200]}") from error

    def write(self, folder: Path) -> None:
        """Write it as PEFT does.

        Raises:
            InfrastructureError: the tensors are not those that were sent.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG_FILE).write_text(self.config, encoding="utf-8")
        (folder / ADAPTER_FILE).write_bytes(self.tensors)
        arrived = tensors_sha256(load_file(folder / ADAPTER_FILE))
        if arrived != self.sha256:
            raise InfrastructureError(
                f"the adapter of version {self.version} arrived damaged ({arrived[:12]}, sent as {self.sha256[:12]})"
            )

    def factors_sha256(self, dtype: torch.dtype) -> str:
        """Return what an engine that computes in `dtype` must report once it uses this adapter."""
        config = json.loads(self.config)
        rank, alpha = config["r"], config["lora_alpha"]
        scaling = alpha / (rank**0.5 if config.get("use_rslora") else rank)
        tensors = load(self.tensors)
        a = (tensor.to(dtype) for name, tensor in tensors.items() if ".lora_A." in name)
        b = (tensor.to(dtype) * scaling for name, tensor in tensors.items() if ".lora_B." in name)
        return factors_sha256(a, b)


@dataclass(frozen=True)
class AdapterReceipt:
    """An engine's answer to a new adapter.

    Attributes:
        version: of the weights that it now generates with.
        sha256: of the tensors that arrived.
        factors_sha256: of the matrices in its slot.
        dtype: in which it computes, e.g. "bfloat16".
        slots: number of adapters that it holds.
    """

    version: int
    sha256: str
    factors_sha256: str
    dtype: str
    slots: int = 1


def check_receipt(package: AdapterPackage, receipt: AdapterReceipt, engine: str = "the engine") -> None:
    """Check the receipt of a sync.

    Args:
        package: what was sent.
        receipt: the engine's answer.
        engine: its name in the error.

    Raises:
        InfrastructureError: the engine generates with other weights.
    """
    expected = package.factors_sha256(getattr(torch, receipt.dtype))
    if (receipt.version, receipt.sha256) != (package.version, package.sha256):
        what = f"version {receipt.version}, {receipt.sha256[:12]}"
    elif receipt.factors_sha256 != expected:
        what = f"matrices {receipt.factors_sha256[:12]} instead of {expected[:12]} in its slot"
    else:
        return
    raise InfrastructureError(
        f"{engine} does not have the trainer's weights after a sync: {what}; "
        f"sent was version {package.version}, {package.sha256[:12]}",
        "Training on its rollouts would be wrong; the same command continues from the last checkpoint",
    )


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over names, dtypes, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def factors_sha256(a: Iterable[Tensor], b: Iterable[Tensor]) -> str:
    """Return the SHA-256 over LoRA factors A (r, in) and B (out, r), whatever their names and order."""
    single = sorted(
        hashlib.sha256(f"{kind} {tensor.dtype} {tuple(tensor.shape)}\n".encode() + _bytes(tensor)).hexdigest()
        for kind, tensors in (("A", a), ("B", b))
        for tensor in tensors
    )
    return hashlib.sha256("\n".join(single).encode()).hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def _plain(value: Any) -> Any:
    # PEFT keeps target modules as a set, and enums that are strings.
    return sorted(value) if isinstance(value, set | frozenset) else str(getattr(value, "value", value))
