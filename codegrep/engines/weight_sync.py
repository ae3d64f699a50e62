"""An engine with weights of its own that follows the weights in training."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from codegrep.config import SyncConfig
from codegrep.engines.engine import Engine, Generation, GenerationRequest
from codegrep.engines.replicas import RemoteEngine

if TYPE_CHECKING:
    from codegrep.engines.adapter import AdapterPackage


class PolicyEngine(Engine, Protocol):
    """An engine that generates with the policy in training."""

    async def follow(self, step: int) -> dict[str, float]:
        """Before rollouts: generate with the weights of optimiser step `step`, or with such as are allowed to be older.

        Returns:
            Numbers of the catalogue (engine/…).

        Raises:
            InfrastructureError: the engine does not have the weights afterwards.
        """
        ...

    async def rest(self) -> None:
        """After rollouts: the trainer works now."""
        ...


class FollowingReplicas:
    """Replicas that are sent the adapter (PolicyEngine).

    Args:
        package: the adapter as it is now, from the trainer's model: step -> AdapterPackage.
        sync: engine.sync. With max_staleness=k the adapter is sent every k + 1 updates.
    """

    def __init__(self, remote: RemoteEngine, package: Callable[[int], AdapterPackage], sync: SyncConfig) -> None:
        self._remote = remote
        self._package = package
        self._sync = sync
        self._known = False  # the first adapter is always sent, also after a restart of the trainer

    async def generate(self, request: GenerationRequest) -> Generation:
        """See Engine.generate."""
        return await self._remote.generate(request)

    async def follow(self, step: int) -> dict[str, float]:
        """See PolicyEngine.follow."""
        await self._remote.wake()
        started, seconds = time.perf_counter(), 0.0
        if not self._known or step - self._remote.weights_version > self._sync.max_staleness:
            await self._remote.sync(self._package(step))
            self._known = True
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
        """See PolicyEngine.rest."""
        await self._remote.sleep()

    async def close(self) -> None:
        """See Engine.close. The replicas stay: their owner ends them."""
        await self._remote.close()
