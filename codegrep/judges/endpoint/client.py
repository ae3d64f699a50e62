"""A client of an OpenAI-compatible endpoint: many questions at once, with retries and a cache on disk.

Rate limits (429), server errors, timeouts and unreadable answers are retried with growing pauses. A question without an
answer gives a `Reply` with an error; it is never raised. A server that no longer answers is not asked the remaining
questions.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codegrep.config.reading import checked
from codegrep.config.setting import group, setting
from codegrep.errors import ConfigError
from codegrep.judges.endpoint.answer_cache import AnswerCache

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_MAX_BYTES = 4_000_000  # of one answer
# Settings that change no answer.
PATIENCE = ("url", "key_variable", "concurrency", "timeout", "retries", "backoff", "max_backoff", "give_up_after")


@group
class Endpoint:
    """Where and how to ask."""

    url: str = setting("base of the API, up to and with /v1", pattern="^https?://")
    model: str = setting("as the server knows it")
    key_variable: str = setting('environment variable with the key, which is in no file or log; "": none', default="")
    temperature: float = setting("of the request", default=0.0)
    max_tokens: int = setting("of the request", ge=1, default=512)
    extra: dict[str, Any] = setting("further fields of the request", default_factory=dict)
    concurrency: int = setting("requests at once", ge=1, default=16)
    timeout: float = setting("seconds of one request", gt=0, default=60.0)
    retries: int = setting("tries after the first", ge=0, default=5)
    backoff: float = setting("seconds before the second try, doubled for each further one", ge=0, default=1.0)
    max_backoff: float = setting("largest pause, also where Retry-After asks for more", ge=0, default=60.0)
    give_up_after: int = setting("unanswered questions in a row that end asking; 0: none do", ge=0, default=64)

    @classmethod
    def from_params(cls, params: Mapping[str, Any], group: str) -> Endpoint:
        """Build from a configuration. group: the config group, named in errors.

        Raises:
            ConfigError: a setting is unknown, missing or out of range.
        """
        return checked(cls, params, f"{group}.params.")

    def headers(self) -> dict[str, str]:
        """Return the headers of every request.

        Raises:
            ConfigError: the variable that should hold the key is not set.
        """
        if not self.key_variable:
            return {}
        key = os.environ.get(self.key_variable, "")
        if not key:
            raise ConfigError(
                f"the environment variable {self.key_variable}, which should hold the judge's key, is not set",
                f"Export {self.key_variable} on every machine that asks, or set key_variable=''",
            )
        return {"Authorization": f"Bearer {key}"}


@dataclass(frozen=True)
class Prompt:
    """One question. vote: number of this request, where several are made with one text."""

    text: str
    vote: int = 0


@dataclass(frozen=True)
class Reply:
    """The answer to a question.

    Attributes:
        value: what `Read` made of the model's text; None without an answer.
        error: why there is none, else "".
        cached: it was in the cache, or came with an equal prompt of the same call.
    """

    value: Mapping[str, Any] | None
    error: str = ""
    cached: bool = False


@dataclass
class Usage:
    """Counts since a judge was opened.

    Attributes:
        requests: sent, retries included.
        retries: those among them that were retries.
        cached: answers that cost nothing.
        prompt_tokens, completion_tokens: as the server counted them.
        failures: requests without a usable answer, by reason.
    """

    requests: int = 0
    retries: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failures: dict[str, int] = field(default_factory=dict)


# The model's text -> JSON-able data that is cached; None for an unusable answer, which is retried.
Read = Callable[[str], Mapping[str, Any] | None]
_Post = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class _Failure(Exception):
    """A request without a usable answer. retry: another try may help; after: seconds that the server asked for."""

    def __init__(self, kind: str, retry: bool, after: float = 0.0) -> None:
        super().__init__(kind)
        self.kind, self.retry, self.after = kind, retry, after


class ChatClient:
    """Asks one model. Equal prompts of one call are sent once.

    Args:
        endpoint: where and how.
        cache: earlier answers, and where new ones are stored; None stores none.
        reading: version of how answers are read, part of their cache key; 0 is none.
    """

    def __init__(self, endpoint: Endpoint, cache: AnswerCache | None = None, reading: int = 0) -> None:
        self._endpoint, self._cache = endpoint, cache
        # What changes answers is part of every cache key; the address is not.
        self._identity = [endpoint.model, endpoint.temperature, endpoint.max_tokens, endpoint.extra]
        self._identity += [reading] if reading else []
        self._unanswered = 0  # questions without an answer since the last answer
        self.usage = Usage()

    def reset(self) -> None:
        """Ask again a server that had stopped answering."""
        self._unanswered = 0

    def ask(self, questions: Sequence[tuple[Prompt, Read]]) -> list[Reply]:
        """Return the answers in order. Call it from a thread without a running event loop.

        Args:
            questions: each prompt with the reader of its answer (the same one for equal prompts).

        Raises:
            ConfigError: the variable that should hold the key is not set.
        """
        import asyncio  # here and below: commands that only check a configuration do without it

        return asyncio.run(self._ask(questions))

    async def _ask(self, questions: Sequence[tuple[Prompt, Read]]) -> list[Reply]:
        readers = dict(questions)
        if self._cache is not None:
            self._cache.refresh()
        replies = {prompt: reply for prompt in readers if (reply := self._cached(prompt)) is not None}
        missing = [prompt for prompt in readers if prompt not in replies]
        if missing:
            import asyncio

            import aiohttp

            limit = aiohttp.ClientTimeout(total=self._endpoint.timeout)
            slots = asyncio.Semaphore(self._endpoint.concurrency)
            async with aiohttp.ClientSession(timeout=limit, headers=self._endpoint.headers()) as session:

                async def one(prompt: Prompt) -> Reply:
                    async with slots:
                        return await self._answer(prompt, readers[prompt], lambda body: self._post(session, body))

                replies |= zip(missing, await asyncio.gather(*(one(prompt) for prompt in missing)), strict=True)
        result, seen = [], set[Prompt]()
        for prompt, _ in questions:
            reply = replies[prompt]
            if prompt in seen and reply.value is not None and not reply.cached:
                self.usage.cached += 1
                reply = Reply(reply.value, cached=True)
            seen.add(prompt)
            result.append(reply)
        return result

    def _key(self, prompt: Prompt) -> str:
        packed = json.dumps([self._identity, prompt.text, prompt.vote], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(packed.encode()).hexdigest()

    def _cached(self, prompt: Prompt) -> Reply | None:
        if self._cache is None or (value := self._cache.get(self._key(prompt))) is None:
            return None
        self.usage.cached += 1
        return Reply(dict(value), cached=True)

    async def _answer(self, prompt: Prompt, read: Read, post: _Post) -> Reply:
        import asyncio

        endpoint, key = self._endpoint, self._key(prompt)
        if endpoint.give_up_after and self._unanswered >= endpoint.give_up_after:
            return Reply(None, f"not asked: {self._unanswered} questions in a row had no answer")
        body = {
            "model": endpoint.model,
            "messages": [{"role": "user", "content": prompt.text}],
            "temperature": endpoint.temperature,
            "max_tokens": endpoint.max_tokens,
            **endpoint.extra,
        }
        failure = _Failure("not asked", retry=False)
        for attempt in range(endpoint.retries + 1):
            if attempt:
                self.usage.retries += 1
                await asyncio.sleep(self._pause(key, attempt, failure.after))
            self.usage.requests += 1
            try:
                value = self._read(await post(body), read)
            except _Failure as error:
                failure = error
                self.usage.failures[error.kind] = self.usage.failures.get(error.kind, 0) + 1
                if not error.retry:
                    break
                continue
            self._unanswered = 0
            if self._cache is not None:
                self._cache.put(key, {**value, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
            return Reply(value)
        self._unanswered += 1
        return Reply(None, failure.kind)

    def _pause(self, key: str, attempt: int, asked: float) -> float:
        """Return seconds before a try, spread by the question's hash, so that many do not come back at once."""
        spread = int(hashlib.sha256(f"{key} {attempt}".encode()).hexdigest()[:4], 16) / 0xFFFF
        pause: float = self._endpoint.backoff * 2 ** (attempt - 1) * (0.5 + spread)
        return min(self._endpoint.max_backoff, max(pause, asked))

    async def _post(self, session: Any, body: dict[str, Any]) -> dict[str, Any]:
        import aiohttp

        url = self._endpoint.url.rstrip("/") + "/chat/completions"
        try:
            # A redirect could carry the question to a server that nobody has configured.
            async with session.post(url, json=body, allow_redirects=False) as response:
                if response.status != 200:
                    after = _seconds(response.headers.get("Retry-After", ""))
                    raise _Failure(f"HTTP {response.status}", response.status in _RETRIED, after)
                raw = bytearray()
                async for chunk in response.content.iter_any():
                    raw += chunk
                    if len(raw) > _MAX_BYTES:
                        raise _Failure("garbage: endless answer", retry=True)
        except TimeoutError:
            raise _Failure("timeout", retry=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _Failure(f"connection: {type(error).__name__}", retry=True) from None
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            raise _Failure("garbage: no JSON", retry=True) from None
        if not isinstance(value, dict):
            raise _Failure("garbage: no object", retry=True)
        return value

    def _read(self, value: dict[str, Any], read: Read) -> Mapping[str, Any]:
        usage = value.get("usage")
        for name in ("prompt_tokens", "completion_tokens"):
            number = usage.get(name) if isinstance(usage, dict) else None
            if isinstance(number, int) and not isinstance(number, bool):
                setattr(self.usage, name, getattr(self.usage, name) + number)
        try:
            text = value["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise _Failure("garbage: no message", retry=True) from None
        if not isinstance(text, str) or not text.strip():
            raise _Failure("garbage: empty answer", retry=True)
        parsed = read(text)
        if parsed is None:
            raise _Failure("garbage: no judgement", retry=True)
        return parsed


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0  # a date, or nothing
