"""The judge behind an OpenAI-compatible endpoint: many questions at once, patient with a server that is not well.

Rate limits (429), server errors, timeouts and garbage are tried again, later and later; what stays without an answer
is an error of its row. A server that answers nothing any more is not asked for every remaining row.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codegrep.errors import ConfigError
from codegrep.labels.answer_cache import AnswerCache
from codegrep.labels.judging import (
    PROMPT_VERSION,
    Question,
    Usage,
    Verdict,
    content_key,
    majority,
    parse_answer,
    prompt,
)

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_LARGEST = 4_000_000  # bytes of an answer; more is garbage


@dataclass(frozen=True)
class EndpointSettings:
    """Where and how to ask.

    Attributes:
        url: base of the API, up to and with /v1.
        model: as the server knows it.
        key_variable: environment variable with the key; "" sends none. The key itself is never configured or logged.
        votes: answers asked for each candidate; the majority counts.
        temperature, max_tokens, extra: of the request; `extra` is added to its body.
        concurrency: requests at once (16 in the paper). timeout: seconds of one request (60 in the paper).
        retries: tries after the first. backoff: seconds before the second try, doubled for each further one, up to
            max_backoff; a server's Retry-After is followed up to the same limit.
        give_up_after: questions in a row without any answer, after which the rest is left unasked; 0 never gives up.
    """

    url: str
    model: str
    key_variable: str = ""
    votes: int = 1
    temperature: float = 0.0
    max_tokens: int = 512
    extra: dict[str, Any] = field(default_factory=dict)
    concurrency: int = 16
    timeout: float = 60.0
    retries: int = 5
    backoff: float = 1.0
    max_backoff: float = 60.0
    give_up_after: int = 64

    def identity(self) -> list[Any]:
        """What changes answers: part of every cache key. The address does not."""
        return [self.model, self.temperature, self.max_tokens, self.extra]


class _Failure(Exception):
    """A request without a usable answer. again: worth another try; after: seconds that the server asked for."""

    def __init__(self, kind: str, again: bool, after: float = 0.0) -> None:
        super().__init__(kind)
        self.kind, self.again, self.after = kind, again, after


class EndpointJudge:
    """Asks a language model over HTTP.

    Args:
        cache: folder of answers that were had before; None keeps none.
    """

    def __init__(self, cache: str | None = None, **settings: Any) -> None:
        """
        Raises:
            ConfigError: a setting is unknown, missing or out of range.
        """
        try:
            self._settings = EndpointSettings(**settings)
        except TypeError as error:
            raise ConfigError(
                f"judge.params: {str(error).partition(') ')[2] or error}", "See conf/judge/llm.yaml"
            ) from None
        if not self._settings.url.startswith(("http://", "https://")):
            raise ConfigError(f"judge.params.url is {self._settings.url!r}", "Give an address http://HOST:PORT/v1")
        if self._settings.concurrency < 1 or self._settings.votes < 1 or self._settings.timeout <= 0:
            raise ConfigError("judge.params: concurrency, votes and timeout must be positive", "The paper: 16, 1, 60")
        self._cache = AnswerCache(Path(cache)) if cache else None
        self._usage = Usage()
        self._in_a_row = 0  # questions without an answer since the last answer

    @property
    def label(self) -> str:
        """See Judge."""
        return f"llm:{self._settings.model}"

    @property
    def version(self) -> str:
        """See Judge."""
        return PROMPT_VERSION

    @property
    def usage(self) -> Usage:
        """See Judge."""
        return self._usage

    def judge(self, questions: Sequence[Question]) -> list[Verdict]:
        """See Judge."""
        return asyncio.run(self._judge(questions))

    async def _judge(self, questions: Sequence[Question]) -> list[Verdict]:
        import aiohttp

        settings = self._settings
        key = os.environ.get(settings.key_variable, "") if settings.key_variable else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limit = aiohttp.ClientTimeout(total=settings.timeout)
        turn = asyncio.Semaphore(settings.concurrency)
        async with aiohttp.ClientSession(timeout=limit, headers=headers) as session:

            async def one(question: Question) -> Verdict:
                async with turn:
                    return await self._verdict(question, lambda body: self._post(session, body))

            return list(await asyncio.gather(*(one(question) for question in questions)))

    async def _verdict(
        self, question: Question, post: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    ) -> Verdict:
        text = prompt(question)
        labels, ambiguous, words = [], False, ""
        for vote in range(self._settings.votes):
            answer = await self._answer(text, vote, post)
            if "error" in answer:
                return Verdict("", error=str(answer["error"]))
            labels.append(str(answer["label"]))
            ambiguous = ambiguous or bool(answer["ambiguous"])
            words = words or str(answer["text"])
        label = majority(labels)
        against = sum(1 for one in labels if one != "RELEVANT")
        return Verdict(label, words, (len(labels) - against, against), ambiguous=ambiguous)

    async def _answer(
        self, text: str, vote: int, post: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        settings = self._settings
        key = content_key(settings.identity(), text, vote)
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            self._usage.cached += 1
            return dict(kept)
        if settings.give_up_after and self._in_a_row >= settings.give_up_after:
            return {"error": f"not asked: {self._in_a_row} questions in a row had no answer"}
        body = {
            "model": settings.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
            **settings.extra,
        }
        failure = _Failure("not asked", again=False)
        for attempt in range(settings.retries + 1):
            if attempt:
                self._usage.retries += 1
                await asyncio.sleep(self._pause(key, attempt, failure.after))
            self._usage.requests += 1
            try:
                answer = self._read(await post(body))
            except _Failure as error:
                failure = error
                self._usage.failures[error.kind] = self._usage.failures.get(error.kind, 0) + 1
                if not error.again:
                    break
                continue
            self._in_a_row = 0
            if self._cache is not None:
                self._cache.put(key, answer)
            return answer
        self._in_a_row += 1
        return {"error": failure.kind}

    def _pause(self, key: str, attempt: int, asked: float) -> float:
        """Seconds before a try, spread by the question's own hash, so that many do not come back at once."""
        settings = self._settings
        spread = int(hashlib.sha256(f"{key} {attempt}".encode()).hexdigest()[:4], 16) / 0xFFFF
        pause: float = settings.backoff * 2 ** (attempt - 1) * (0.5 + spread)
        return min(settings.max_backoff, max(pause, asked))

    async def _post(self, session: Any, body: dict[str, Any]) -> dict[str, Any]:
        import aiohttp

        url = self._settings.url.rstrip("/") + "/chat/completions"
        try:
            async with session.post(url, json=body) as response:
                if response.status != 200:
                    after = _seconds(response.headers.get("Retry-After", ""))
                    raise _Failure(f"HTTP {response.status}", response.status in _AGAIN, after)
                raw = bytearray()
                async for chunk in response.content.iter_any():
                    raw += chunk
                    if len(raw) > _LARGEST:
                        raise _Failure("garbage: endless answer", again=True)
        except TimeoutError:
            raise _Failure("timeout", again=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _Failure(f"connection: {type(error).__name__}", again=True) from None
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            raise _Failure("garbage: no JSON", again=True) from None
        if not isinstance(value, dict):
            raise _Failure("garbage: no object", again=True)
        return value

    def _read(self, value: dict[str, Any]) -> dict[str, Any]:
        try:
            text = value["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise _Failure("garbage: no message", again=True) from None
        parsed = parse_answer(text) if isinstance(text, str) else None
        if parsed is None:
            raise _Failure("garbage: empty answer", again=True)
        usage = value.get("usage")
        for name in ("prompt_tokens", "completion_tokens"):
            number = usage.get(name) if isinstance(usage, dict) else None
            if isinstance(number, int) and not isinstance(number, bool):
                setattr(self._usage, name, getattr(self._usage, name) + number)
        return {
            "label": parsed[0],
            "ambiguous": parsed[1],
            "text": str(text).strip()[-200:],
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0  # a date, or nothing
