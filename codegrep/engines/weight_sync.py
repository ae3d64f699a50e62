"""Engines that generate with the weights in training."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from codegrep.config import SyncConfig
from codegrep.engines.engine import Engine, Generation, GenerationRequest
from codegrep.engines.replicas import RemoteEngine

if TYPE_CHECKING:
    from codegrep.engines.adapter import AdapterPackage
    from codegrep.engines.transformers_engine import TransformersEngine


class PolicyEngine(Engine, Protocol):
    """An engine that generates with the policy in training."""

    async def follow(self, step: int) -> dict[str, float]:
        """Before rollouts, take the weights of optimiser step `step`, or keep such as are allowed to be older.

        Returns:
            Metrics (engine/…).

        Raises:
            InfrastructureError: the engine does not have the weights afterwards.
        """
        ...

    async def rest(self) -> None:
        """After rollouts, make way for the trainer."""
        ...


class SharedModelEngine:
    """A transformers engine over the very model in training, which cannot fall behind."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue one prompt."""
        return await self._engine.generate(request)

    async def follow(self, step: int) -> dict[str, float]:
        """Take the number of the weights; nothing is sent."""
        self._engine.weights_version = step
        return {"engine/weights_version": float(step), "engine/staleness": 0.0}

    async def rest(self) -> None:
        """Do nothing: there is nothing to give back."""

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()


class FollowingReplicas:
    """Replicas that are sent the adapter.

    Args:
        remote: the replicas; their owner ends them.
        package: returns the current adapter of the trainer's model, for an optimiser step.
        sync: engine.sync. With max_staleness=k the adapter is sent every k + 1 updates.
    """

    def __init__(self, remote: RemoteEngine, package: Callable[[int], AdapterPackage], sync: SyncConfig) -> None:
        self._remote = remote
        self._package = package
        self._sync = sync
        self._sent = False  # the first adapter is always sent, also after a restart of the trainer

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue one prompt."""
        return await self._remote.generate(request)

    async def follow(self, step: int) -> dict[str, float]:
        """Wake the replicas and send them the adapter if it is due."""
        await self._remote.wake()
        started, seconds = time.perf_counter(), 0.0
        if not self._sent or step - self._remote.weights_version > self._sync.max_staleness:
            await self._remote.sync(self._package(step))
            self._sent = True
            seconds = time.perf_counter() - started
        counts = self._remote.counts
        return {
            "engine/weights_version": float(self._remote.weights_version),
            "engine/staleness": float(step - self._remote.weights_version),
            "engine/sync_seconds": seconds,
            "engine/retries": float(counts["retries"]),
            "engine/restarts": float(counts["restarts"]),
        }

    async def rest(self) -> None:
        """Let the replicas sleep."""
        await self._remote.sleep()

    async def close(self) -> None:
        """Leave the replicas to their owner."""
        await self._remote.close()
