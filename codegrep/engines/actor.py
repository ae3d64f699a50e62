"""vLLM engines in Ray actors; `codegrep.engines.replicas` is the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codegrep.engines.engine import Generation, GenerationRequest, StaleWeightsError
from codegrep.engines.replicas import RemoteEngine, RetryPolicy

if TYPE_CHECKING:
    from codegrep.engines.adapter import AdapterPackage, AdapterReceipt
    from codegrep.engines.vllm_engine import VLLMEngine

# Requests of one replica that Ray lets in; the engine queues what it cannot batch.
_MAX_CONCURRENCY = 1024

Build = Callable[[], Awaitable["VLLMEngine"]]


@dataclass(frozen=True)
class ReplicaResources:
    """What Ray reserves for one replica.

    Attributes:
        cpus: may be a fraction.
        gpus: 0 for a replica that shares the GPUs of others.
        environment: variables of its process.
    """

    cpus: float
    gpus: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)


def start_replicas(count: int, build: Build, resources: ReplicaResources, patience: RetryPolicy) -> RemoteEngine:
    """Start actors in the running Ray, spread over its nodes. Ray restarts them as often as they die.

    Check first that the resources exist (`codegrep.runtime.placement`): Ray waits for them for ever.
    """
    import ray

    options = ray.remote(EngineActor).options(
        num_cpus=resources.cpus,
        num_gpus=resources.gpus,
        max_restarts=-1,
        max_task_retries=0,  # RemoteEngine repeats a request, on another replica if there is one
        max_concurrency=_MAX_CONCURRENCY,
        scheduling_strategy="SPREAD",
        runtime_env={"env_vars": dict(resources.environment)} if resources.environment else None,
    )
    handles: list[Any] = [options.remote(build) for _ in range(count)]
    return RemoteEngine(handles, patience)


class EngineActor:
    """One replica. Its first call starts the engine, so that it starts again after a restart by Ray.

    Args:
        build: makes the engine inside the actor's event loop; picklable.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._engine: VLLMEngine | None = None
        self._sha256 = ""
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Build the engine if there is none."""
        async with self._starting:
            if self._engine is None:
                self._engine = await self._build()

    async def generate(self, request: GenerationRequest, sha256: str) -> Generation:
        """Continue one prompt.

        Args:
            request: passed to the engine.
            sha256: of the adapter that the caller expects, "" for the base.

        Raises:
            StaleWeightsError: this replica has another adapter: it was restarted, or missed a sync.
        """
        if self._engine is None or self._sha256 != sha256:
            raise StaleWeightsError("this replica was restarted and has not got the adapter")
        return await self._engine.generate(request)

    async def load_adapter(self, package: AdapterPackage) -> AdapterReceipt:
        """Generate with this adapter from now on."""
        await self.start()
        assert self._engine is not None
        receipt = await self._engine.load_adapter(package)
        self._sha256 = package.sha256
        return receipt

    async def sleep(self) -> None:
        """Free the engine's memory while the trainer works."""
        if self._engine is not None:
            await self._engine.sleep()

    async def wake(self) -> None:
        """Undo `sleep`."""
        if self._engine is not None:
            await self._engine.wake()
