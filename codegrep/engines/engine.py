"""The seam between the rollout loop and whatever generates tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from codegrep.errors import InfrastructureError


class EngineLostError(InfrastructureError):
    """The engine cannot generate any more, or cannot be trusted; it has to be started again."""


class StaleWeightsError(InfrastructureError):
    """The engine has other weights than the request asks for; it has to be given them first."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        max_tokens: most tokens of one generation, the stop token included.
        temperature: 0 means greedy.
        top_p: nucleus mass in (0, 1].
        top_k: 0 means off.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt, as token ids, and how to continue it.

    Attributes:
        seed: None leaves the draw to the engine's generator.
        prefix_group: requests with the same number begin alike (rollouts of one issue, turns of one rollout), so that
            the prefix cache of one replica serves them; None where nothing is known.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int | None = None
    prefix_group: int | None = None


@dataclass(frozen=True)
class Generation:
    """What was sampled.

    Attributes:
        token_ids: sampled ids, the stop token included when finish_reason is "stop".
        logprobs: raw log-probabilities (before temperature, top-p, top-k) of token_ids under the model, same length;
            empty where the engine gives none.
        finish_reason: "stop" (end-of-turn token), "length" (max_tokens or context reached), "abort".
        weights_version: version of the weights that produced the tokens.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length", "abort"]
    weights_version: int = 0


@runtime_checkable
class Engine(Protocol):
    """Generates many requests at once; raises InfrastructureError when it is lost."""

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue one prompt. Awaited concurrently by many rollouts; the engine batches as it sees fit."""
        ...

    async def close(self) -> None:
        """Free what the engine holds. Safe to call twice."""
        ...
