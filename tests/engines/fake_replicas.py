"""Engines that misbehave on request, for tests of what stands between them and the rollouts. They run in Ray actors."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load

from codegrep.engines.adapter import AdapterPackage, AdapterReceipt, factors_sha256
from codegrep.engines.engine import EngineLostError, Generation, GenerationRequest, Sampling

SAMPLING = Sampling(max_tokens=4)


class FakeEngine:
    """Says the prompt's first token, then its own process id; `folder` holds files that order misdeeds.

    A file is taken (removed) by the first replica that sees it, which then does so once: "die" by SIGKILL, "hang"
    without an answer, answer "garbage", or "forget" an adapter that it acknowledges. One that takes "lose" or
    "stillborn" has lost the process that computes, when it is given an adapter or while it starts; for good.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.weights_version = 0
        self._tensors: dict[str, torch.Tensor] = {}
        self.asleep = False
        self._lost = False
        with (folder / "started").open("a") as file:
            file.write(f"{os.getpid()}\n")

    async def generate(self, request: GenerationRequest) -> Generation:
        await asyncio.sleep(0.02)
        if self._ordered("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._ordered("hang"):
            await asyncio.sleep(1000)
        if self._ordered("garbage"):
            return Generation((1, 2), (0.0,), "stop", self.weights_version)
        if self.asleep:
            raise RuntimeError("asleep")
        return Generation((request.prompt_ids[0], os.getpid()), (-1.0, -1.0), "stop", self.weights_version)

    async def load_adapter(self, package: AdapterPackage) -> AdapterReceipt:
        self._lost |= self._ordered("lose")
        if self._lost:
            raise EngineLostError("the core is dead")
        if not self._ordered("forget"):
            self._tensors, self.weights_version = load(package.tensors), package.version
        a = [t for n, t in self._tensors.items() if "lora_A" in n]
        b = [t * 2 for n, t in self._tensors.items() if "lora_B" in n]
        return AdapterReceipt(package.version, package.sha256, factors_sha256(a, b), "float32", 1)

    async def sleep(self) -> None:
        self.asleep = True

    async def wake(self) -> None:
        self.asleep = False

    async def close(self) -> None:
        pass

    def _ordered(self, misdeed: str) -> bool:
        try:
            (self._folder / misdeed).unlink()
        except FileNotFoundError:
            return False
        return True


async def build(folder: Path) -> FakeEngine:
    engine = FakeEngine(folder)
    if engine._ordered("stillborn"):
        raise EngineLostError("the core was killed while it started")
    return engine


def package(version: int) -> AdapterPackage:
    tensors = {"m.lora_A.weight": torch.full((2, 3), float(version)), "m.lora_B.weight": torch.ones(4, 2)}
    return AdapterPackage.of(tensors, {"r": 2, "lora_alpha": 4}, version)


def started(folder: Path) -> Sequence[int]:
    return [int(line) for line in (folder / "started").read_text().split()]
