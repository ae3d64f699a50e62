"""Generation with vLLM: continuous batching, prefix caching, one LoRA slot that is refilled in place.

`codegrep.engines.actor` puts it into Ray actors. vLLM is imported when an engine starts.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import math
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from codegrep.engines.adapter import AdapterPackage, AdapterReceipt
from codegrep.engines.engine import EngineLostError, Generation, GenerationRequest
from codegrep.engines.vllm_arguments import VLLMSpec, engine_arguments, environment
from codegrep.errors import ConfigError, InfrastructureError, ModelError

# vLLM's message about processes that a signal ended before they were up. After a crash of its own the exit code is
# another one, or is not known yet; then the next start tells.
_KILLED = re.compile(r"Failed core proc\(s\): \{(?:\}|[^}]*: -(?:9|15)\b)")
_SLOT = 1  # vLLM counts adapters from 1
_INSTALL = "Run make cpu-engine (on GPUs: pip install 'codegrep[gpu-engine]'), or use engine=transformers"


class VLLMEngine:
    """Engine over vllm.AsyncLLM; belongs to the event loop it was started in.

    With a seed, or at temperature 0, a request gives the same tokens under the same weights but for rounding: other
    sequences of a batch change the last bits of the logits.

    Attributes:
        weights_version: of the adapter in the slot; 0 before the first.
    """

    def __init__(self, spec: VLLMSpec, llm: Any) -> None:
        self._spec = spec
        self._llm = llm
        self._numbers = itertools.count()
        self._active = 0
        self._idle = asyncio.Condition()
        self._exclusive = False
        self._adapters = Path(tempfile.mkdtemp(prefix="codegrep-adapters-"))
        self._adapter: Any = None  # the LoRARequest of requests
        self._closed = False
        self.weights_version = 0

    @classmethod
    async def start(cls, spec: VLLMSpec) -> VLLMEngine:
        """Load the model; seconds on a CPU, minutes for a large one.

        Raises:
            ConfigError: vLLM is not installed, or refuses an argument.
            EngineLostError: its processes were killed while they started.
            ModelError: vLLM cannot run the model.
        """
        os.environ.update({k: v for k, v in environment(spec.vllm).items() if k not in os.environ})
        arguments = engine_arguments(spec)
        need_vllm()
        try:
            from vllm import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise ConfigError(f"vLLM is installed and does not import ({_first_line(error)})", _INSTALL) from error
        try:
            checked = AsyncEngineArgs(**arguments)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"vLLM refuses engine.vllm: {_first_line(error)}", "Check engine.vllm.extra") from error
        try:
            llm = AsyncLLM.from_engine_args(checked)
        except Exception as error:  # the library raises many types for what is wrong with model, memory or device
            if _KILLED.search(str(error)):
                raise EngineLostError("vLLM's process was killed while it started (out of memory?)") from error
            raise ModelError(
                f"vLLM cannot start with model folder {spec.model}: {_first_line(error)}",
                "Its log says more; see docs/engines.md for memory and threads",
            ) from error
        engine = cls(spec, llm)
        try:
            await engine._ask(llm.collective_rpc("end_with", args=(os.getpid(),)))
        except InfrastructureError:
            await engine.close()
            raise
        return engine

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue one prompt. Cancelling frees its place in the batch.

        Raises:
            EngineLostError: the engine's processes are gone, or its output is malformed.
            InfrastructureError: the engine is closed, or refuses the request.
        """
        if not request.prompt_ids:
            raise InfrastructureError("a prompt without tokens cannot be continued")
        room = min(request.sampling.max_tokens, self._spec.context - len(request.prompt_ids))
        if room <= 0:
            return Generation((), (), "length", self.weights_version)
        async with self._idle:
            await self._idle.wait_for(lambda: not self._exclusive)
            self._active += 1
        try:
            return await self._generate(request, room)
        finally:
            async with self._idle:
                self._active -= 1
                self._idle.notify_all()

    async def load_adapter(self, package: AdapterPackage) -> AdapterReceipt:
        """Put an adapter into the slot, after running requests and before new ones.

        Returns:
            What the engine's workers now hold in the buffers that they multiply with.

        Raises:
            EngineLostError: the engine's processes are gone.
            InfrastructureError: the adapter is damaged, or vLLM refuses it.
        """
        from vllm.lora.request import LoRARequest

        async with self._idle:
            await self._idle.wait_for(lambda: not self._exclusive)
            self._exclusive = True
            await self._idle.wait_for(lambda: self._active == 0)
        try:
            folder = self._adapters / f"{package.version}-{package.sha256[:16]}"
            await asyncio.to_thread(package.write, folder)
            # vLLM's prefix cache looks blocks up by the adapter's name, so a new version needs a new name.
            name = f"policy-{folder.name}"
            await self._ask(self._llm.add_lora(LoRARequest(name, _SLOT, str(folder), load_inplace=True)))
            workers = await self._ask(self._llm.collective_rpc("read_adapter", args=(_SLOT,)))
            # With load_inplace on requests vLLM would read the folder again for every token.
            self._adapter = LoRARequest(name, _SLOT, str(folder))
            self.weights_version = package.version
            self._remove_others(folder)
        finally:
            async with self._idle:
                self._exclusive = False
                self._idle.notify_all()
        factors = {worker["factors"] for worker in workers}
        return AdapterReceipt(
            version=package.version,
            sha256=package.sha256,
            factors_sha256=factors.pop() if len(factors) == 1 else "workers differ",
            dtype=workers[0]["dtype"] or self._spec.dtype,
            slots=max(worker["held"] for worker in workers),
        )

    async def sleep(self) -> None:
        """Free GPU memory for the trainer: weights move to host memory, keys and values are dropped."""
        if self._spec.vllm.sleep:
            await self._ask(self._llm.sleep(level=1))

    async def wake(self) -> None:
        """Take the memory back."""
        if self._spec.vllm.sleep:
            await self._ask(self._llm.wake_up())

    async def forget_prefixes(self) -> None:
        """Empty the prefix cache, for measurements."""
        await self._ask(self._llm.reset_prefix_cache())

    async def close(self) -> None:
        """End the engine's processes. May be called twice."""
        if self._closed:
            return
        self._closed = True
        with suppress(Exception):  # it may be dead already
            await asyncio.to_thread(self._llm.shutdown)
        shutil.rmtree(self._adapters, ignore_errors=True)

    async def _generate(self, request: GenerationRequest, room: int) -> Generation:
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        if self._closed:
            raise InfrastructureError("the engine is closed")
        version, sampling = self.weights_version, request.sampling
        parameters = SamplingParams(
            max_tokens=room,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=request.seed,
            stop_token_ids=list(self._spec.stop_ids),
            logprobs=0,  # of the sampled token alone
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = TokensPrompt(prompt_token_ids=list(request.prompt_ids))
        stream = self._llm.generate(prompt, parameters, f"r{next(self._numbers)}", lora_request=self._adapter)
        try:
            outputs = [output async for output in stream]
        except Exception as error:
            raise self._translated(error) from error
        if not outputs or not outputs[-1].outputs:
            raise EngineLostError("vLLM ended a request without an answer")
        return self._checked(outputs[-1].outputs[0], version)

    def _checked(self, output: Any, version: int) -> Generation:
        ids = tuple(int(token) for token in output.token_ids)
        logprobs = tuple(float(entry[token].logprob) for token, entry in zip(ids, output.logprobs or (), strict=False))
        reason: Literal["stop", "length", "abort"] = "abort"
        if output.finish_reason in ("stop", "length"):
            # vLLM says "length" also if the last token that fitted ended the turn.
            reason = "stop" if ids and ids[-1] in self._spec.stop_ids else "length"
        if len(logprobs) != len(ids) or not all(map(math.isfinite, logprobs)):
            raise EngineLostError("vLLM gave log-probabilities that are not finite, or not one a token")
        if any(not 0 <= token < self._spec.vocabulary for token in ids):
            raise EngineLostError("vLLM gave tokens that are not in the vocabulary")
        return Generation(ids, logprobs, reason, version)

    async def _ask(self, work: Any) -> Any:
        try:
            return await work
        except Exception as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, InfrastructureError):
            return error
        message = f"{type(error).__name__}: {_first_line(error)}"
        if self._llm.errored or type(error).__name__ == "EngineDeadError":
            return EngineLostError(f"vLLM's engine process is gone ({message})")
        return InfrastructureError(f"vLLM refuses a request ({message})")

    def _remove_others(self, current: Path) -> None:
        for folder in self._adapters.iterdir():
            if folder != current:
                shutil.rmtree(folder, ignore_errors=True)


def need_vllm() -> None:
    """Check that vLLM is installed, without importing it.

    Raises:
        ConfigError: it is not.
    """
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError("engine=vllm needs vLLM, which is not installed here", _INSTALL)


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:300]
