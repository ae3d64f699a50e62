"""An endpoint that speaks the chat-completions protocol, for evaluation: text in, text out.

It does not give the ids of the tokens that it sampled, so it cannot be trained on: `generate` refuses.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from codegrep.config import OpenAIConfig
from codegrep.engines.engine import Generation, GenerationRequest, Sampling
from codegrep.errors import ConfigError, InfrastructureError

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_LONGEST_PAUSE = 30.0
_FINISHED = {"stop": "stop", "length": "length", "tool_calls": "stop", "function_call": "stop"}


@dataclass(frozen=True)
class Reply:
    """An assistant message. finish_reason: "stop", "length", or what the endpoint calls it."""

    text: str
    finish_reason: str


class OpenAIEngine:
    """Client of one model behind one endpoint. Requests are repeated after 429, 5xx and lost connections.

    Raises:
        ConfigError: the environment variable of the key is empty.
    """

    def __init__(self, config: OpenAIConfig, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        headers = {}
        if config.key_variable:
            key = os.environ.get(config.key_variable, "")
            if not key:
                raise ConfigError(
                    f"engine.openai.key_variable names {config.key_variable}, which is not set",
                    f"Export {config.key_variable}, or set engine.openai.key_variable=''",
                )
            headers["Authorization"] = f"Bearer {key}"
        self._config = config
        self._headers = headers
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None
        self._slots = asyncio.Semaphore(config.parallel)

    async def generate(self, _request: GenerationRequest) -> Generation:
        """Refuse to generate tokens.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "engine=openai gives text and no tokens, so nothing can be trained on it",
            "Use engine=vllm or engine=transformers; engine=openai serves judges, teachers and evaluation",
        )

    async def complete(
        self,
        messages: Sequence[Mapping[str, str]],
        sampling: Sampling,
        *,
        seed: int | None = None,
    ) -> Reply:
        """Return one assistant message.

        Args:
            messages: role and content each.
            sampling: top_k is left out if it is 0, for not every endpoint knows it.
            seed: None sends none.

        Raises:
            InfrastructureError: no answer after all attempts, or a malformed one.
            ConfigError: the endpoint refuses the request itself (key, model, parameters).
        """
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": [dict(message) for message in messages],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if seed is not None:
            body["seed"] = seed % 2**31
        async with self._slots:
            return _reply(await self._post(body))

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _post(self, body: Mapping[str, Any]) -> Any:
        if self._client is None:  # made here, for it belongs to the running event loop
            self._client = httpx2.AsyncClient(
                headers=self._headers, timeout=self._config.seconds, transport=self._transport
            )
        url = f"{self._config.url.rstrip('/')}/chat/completions"
        problem = ""
        for attempt in range(self._config.attempts):
            if attempt:
                await asyncio.sleep(_pause(attempt, problem))
            try:
                response = await self._client.post(url, json=body)
            except httpx2.HTTPError as error:
                problem = f"{type(error).__name__} {error}".strip()
                continue
            if response.status_code == 200:
                try:
                    return response.json()
                except ValueError:
                    problem = "an answer that is no JSON"
                    continue
            problem = f"status {response.status_code}: {response.text[:200]}"
            if response.status_code not in _AGAIN:
                raise ConfigError(f"{url} refuses the request ({problem})", "Check engine.openai: url, model, key")
        raise InfrastructureError(f"{url} gave no answer in {self._config.attempts} attempts (last: {problem})")


def _reply(answer: Any) -> Reply:
    try:
        choice = answer["choices"][0]
        text = choice["message"]["content"] or ""
        reason = str(choice.get("finish_reason") or "stop")
        return Reply(str(text), _FINISHED.get(reason, reason))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InfrastructureError(f"the endpoint's answer cannot be read ({type(error).__name__}: {error})") from error


def _pause(attempt: int, problem: str) -> float:
    """Return the seconds before an attempt: exponential with jitter, longer after 429."""
    base = 1.0 if "status 429" in problem else 0.25
    return float(min(_LONGEST_PAUSE, base * 2 ** (attempt - 1))) * random.uniform(0.5, 1.0)
