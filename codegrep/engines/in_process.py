"""The transformers engine over the very model that is being trained: it cannot fall behind (PolicyEngine)."""

from __future__ import annotations

from codegrep.engines.engine import Generation, GenerationRequest
from codegrep.engines.transformers_engine import TransformersEngine


class SharedModelEngine:
    """PolicyEngine without weights of its own."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine

    async def generate(self, request: GenerationRequest) -> Generation:
        """See Engine.generate."""
        return await self._engine.generate(request)

    async def follow(self, step: int) -> dict[str, float]:
        """See PolicyEngine.follow: only the number is new."""
        self._engine.weights_version = step
        return {"engine/weights_version": float(step), "engine/staleness": 0.0}

    async def rest(self) -> None:
        """See PolicyEngine.rest: there is nothing to give back."""

    async def close(self) -> None:
        """See Engine.close."""
        await self._engine.close()
