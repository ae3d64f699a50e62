"""What every engine takes and gives: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from codegrep.errors import InfrastructureError


class EngineLostError(InfrastructureError):
    """The engine cannot generate any more, or cannot be trusted; it has to be restarted."""


class StaleWeightsError(InfrastructureError):
    """The engine has other weights than the request asks for; it has to be sent them first."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are sampled.

    Attributes:
        max_tokens: of one generation, the stop token included.
        temperature: 0 is greedy.
        top_p: nucleus mass in (0, 1].
        top_k: 0 is off.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt as token ids, and how to continue it.

    Attributes:
        seed: None leaves the draws to the engine's generator.
        prefix_group: requests with the same number begin alike (rollouts of one issue), so that they go to one
            replica's prefix cache; None if nothing is known.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int | None = None
    prefix_group: int | None = None


@dataclass(frozen=True)
class Generation:
    """What was sampled.

    Attributes:
        token_ids: sampled ids, the stop token included if finish_reason is "stop".
        logprobs: raw log-probabilities of token_ids (before temperature, top-p, top-k), in nats; empty if the engine
            gives none.
        finish_reason: "stop" (end-of-turn token), "length" (max_tokens or context reached) or "abort".
        weights_version: of the weights that sampled the tokens.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length", "abort"]
    weights_version: int = 0


@runtime_checkable
class Engine(Protocol):
    """Generates for many requests at once; raises InfrastructureError when it is lost."""

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue one prompt. Many rollouts await it concurrently; the engine batches them."""
        ...

    async def close(self) -> None:
        """Free what the engine holds. May be called twice."""
        ...
