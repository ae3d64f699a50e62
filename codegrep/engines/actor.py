"""Engines in Ray actors. The actor is a thin wrapper; `codegrep.engines.replicas` is the other end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from codegrep.engines.engine import Engine, Generation, GenerationRequest, StaleWeightsError
from codegrep.engines.replicas import RemoteEngine, RetryPolicy

if TYPE_CHECKING:
    from codegrep.engines.adapter import AdapterPackage, AdapterReceipt

# Requests of one replica that Ray lets in; the engine queues what it cannot batch.
_MAX_CONCURRENCY = 1024


class AdaptableEngine(Engine, Protocol):
    """An engine with weights of its own, which are kept in step by LoRA adapters."""

    async def load_adapter(self, package: AdapterPackage) -> AdapterReceipt:
        """Generate with this adapter from now on."""
        ...

    async def sleep(self) -> None:
        """Free what can be freed while the trainer works."""
        ...

    async def wake(self) -> None:
        """Undo `sleep`."""
        ...

    async def stats(self) -> dict[str, float]:
        """Counters of what must not grow."""
        ...


Build = Callable[[], Awaitable[AdaptableEngine]]


class EngineActor:
    """One replica. Started by its first call, so that a restart by Ray needs nobody's help.

    Args:
        build: makes the engine inside the actor's event loop; picklable.
    """

    def __init__(self, build: Build) -> None:
        self._build = build
        self._engine: AdaptableEngine | None = None
        self._sha256 = ""
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Build the engine if there is none."""
        async with self._starting:
            if self._engine is None:
                self._engine = await self._build()

    async def generate(self, request: GenerationRequest, sha256: str) -> Generation:
        """See Engine.generate. sha256: of the adapter that the caller expects, "" for the base.

        Raises:
            StaleWeightsError: this replica has another one (it was restarted, or a sync has passed it by).
        """
        if self._engine is None or self._sha256 != sha256:
            raise StaleWeightsError("this replica was restarted and has not got the adapter")
        return await self._engine.generate(request)

    async def load_adapter(self, package: AdapterPackage) -> AdapterReceipt:
        """See AdaptableEngine.load_adapter."""
        await self.start()
        assert self._engine is not None
        receipt = await self._engine.load_adapter(package)
        self._sha256 = package.sha256
        return receipt

    async def sleep(self) -> None:
        """See AdaptableEngine.sleep."""
        if self._engine is not None:
            await self._engine.sleep()

    async def wake(self) -> None:
        """See AdaptableEngine.wake."""
        if self._engine is not None:
            await self._engine.wake()

    async def stats(self) -> dict[str, float]:
        """See AdaptableEngine.stats."""
        return {} if self._engine is None else await self._engine.stats()

    async def close(self) -> None:
        """Free what the engine holds."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()


@dataclass(frozen=True)
class ReplicaResources:
    """What Ray sets aside for one replica, and how its process begins.

    Attributes:
        cpus, gpus: GPUs are 0 for a replica that shares those of others.
        environment: variables of its process.
    """

    cpus: float
    gpus: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)


def start_replicas(count: int, build: Build, resources: ReplicaResources, patience: RetryPolicy) -> RemoteEngine:
    """Start actors in the running Ray, spread over its nodes. They are restarted by Ray as often as they die.

    Whether the resources can be had is to be asked first (`codegrep.runtime.resources`): Ray waits for ever.
    """
    import ray

    options = ray.remote(EngineActor).options(
        num_cpus=resources.cpus,
        num_gpus=resources.gpus,
        max_restarts=-1,
        max_task_retries=0,  # a request is asked again by the other end, on another replica where there is one
        max_concurrency=_MAX_CONCURRENCY,
        scheduling_strategy="SPREAD",
        runtime_env={"env_vars": dict(resources.environment)} if resources.environment else None,
    )
    handles: list[Any] = [options.remote(build) for _ in range(count)]
    return RemoteEngine(handles, patience)
