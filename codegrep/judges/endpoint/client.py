"""The client of an OpenAI-compatible endpoint: many questions at once, patient with a server that is not well.

Rate limits (429), server errors, timeouts and garbage are tried again, later and later; what stays without an answer
is a `Reply` with an error, and is never raised. A server that answers nothing any more is not asked for every
remaining question. Answers can be kept in a folder, so that nothing is paid for twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codegrep.errors import ConfigError
from codegrep.judges.endpoint.answer_cache import AnswerCache
from codegrep.judges.endpoint.prompting import content_key
from codegrep.judges.endpoint.usage import Usage

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_LARGEST = 4_000_000  # bytes of an answer; more is garbage
# What changes no answer: an address, a key, and patience.
PATIENCE = ("url", "key_variable", "concurrency", "timeout", "retries", "backoff", "max_backoff", "give_up_after")


@dataclass(frozen=True)
class Endpoint:
    """Where and how to ask.

    Attributes:
        url: base of the API, up to and with /v1.
        model: as the server knows it.
        key_variable: environment variable with the key; "" sends none. The key itself is never configured or logged.
        temperature, max_tokens, extra: of the request; `extra` is added to its body.
        concurrency: requests at once. timeout: seconds of one request.
        retries: tries after the first. backoff: seconds before the second try, doubled for each further one, up to
            max_backoff; a server's Retry-After is followed up to the same limit.
        give_up_after: questions in a row without any answer, after which the rest is left unasked; 0 never gives up.
    """

    url: str
    model: str
    key_variable: str = ""
    temperature: float = 0.0
    max_tokens: int = 512
    extra: dict[str, Any] = field(default_factory=dict)
    concurrency: int = 16
    timeout: float = 60.0
    retries: int = 5
    backoff: float = 1.0
    max_backoff: float = 60.0
    give_up_after: int = 64

    @classmethod
    def from_params(cls, params: Mapping[str, Any], group: str) -> Endpoint:
        """Settings as a configuration gives them. group: the config group, named in errors.

        Raises:
            ConfigError: a setting is unknown, missing or out of range.
        """
        try:
            made = cls(**params)
        except TypeError as error:
            said = str(error).partition(") ")[2] or str(error)
            raise ConfigError(f"{group}.params: {said}", f"See conf/{group}") from None
        if not made.url.startswith(("http://", "https://")):
            raise ConfigError(f"{group}.params.url is {made.url!r}", "Give an address http://HOST:PORT/v1")
        if made.concurrency < 1 or made.timeout <= 0 or made.max_tokens < 1:
            raise ConfigError(
                f"{group}.params: concurrency, timeout and max_tokens must be positive", f"See conf/{group}"
            )
        if made.retries < 0 or made.backoff < 0 or made.max_backoff < 0 or made.give_up_after < 0:
            raise ConfigError(
                f"{group}.params: retries, backoff, max_backoff and give_up_after may not be negative",
                f"See conf/{group}",
            )
        return made

    def identity(self) -> list[Any]:
        """What changes answers: part of every cache key. The address does not."""
        return [self.model, self.temperature, self.max_tokens, self.extra]

    def headers(self) -> dict[str, str]:
        """Of every request.

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
    """One question. vote: number of the answer that is asked for, where several are."""

    text: str
    vote: int = 0


@dataclass(frozen=True)
class Reply:
    """What came of a question.

    Attributes:
        value: what `read` made of the model's words, as plain data; None without an answer.
        error: why there is none, else "".
        cached: it was there already, or came with an equal prompt of the same call.
    """

    value: Mapping[str, Any] | None
    error: str = ""
    cached: bool = False


# The model's words -> plain data (JSON-able) that is kept; None for an answer that cannot be used and is asked again.
Read = Callable[[str], Mapping[str, Any] | None]
_Post = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class _Failure(Exception):
    """A request without a usable answer. again: worth another try; after: seconds that the server asked for."""

    def __init__(self, kind: str, again: bool, after: float = 0.0) -> None:
        super().__init__(kind)
        self.kind, self.again, self.after = kind, again, after


class ChatClient:
    """Asks one model. Equal prompts of one call are asked once.

    Args:
        endpoint: where and how.
        cache: answers that were had before, and where new ones are kept; None keeps none.
        reading: version of how answers are read, part of the key that they are kept under; 0 is none.
    """

    def __init__(self, endpoint: Endpoint, cache: AnswerCache | None = None, reading: int = 0) -> None:
        self._endpoint, self._cache = endpoint, cache
        self._identity = [*endpoint.identity(), *([reading] if reading else [])]
        self._in_a_row = 0  # questions without an answer since the last answer
        self.usage = Usage()

    def hope_again(self) -> None:
        """Forget that the server was given up."""
        self._in_a_row = 0

    def ask(self, prompts: Sequence[Prompt], read: Read) -> list[Reply]:
        """Answers in the order of the prompts; from a thread without a running event loop.

        Raises:
            ConfigError: the variable that should hold the key is not set.
        """
        return self.ask_each([(prompt, read) for prompt in prompts])

    def ask_each(self, questions: Sequence[tuple[Prompt, Read]]) -> list[Reply]:
        """As `ask`, each prompt with a reader of its own (one for equal prompts)."""
        import asyncio  # here and below: commands that only check a configuration do without it

        return asyncio.run(self._ask(questions))

    async def _ask(self, questions: Sequence[tuple[Prompt, Read]]) -> list[Reply]:
        endpoint, prompts, reads = self._endpoint, [prompt for prompt, _ in questions], dict(questions)
        if self._cache is not None:
            self._cache.refresh()
        answers = {prompt: self._kept(prompt) for prompt in reads}
        todo = [prompt for prompt, kept in answers.items() if kept is None]
        if todo:
            import asyncio

            import aiohttp

            limit = aiohttp.ClientTimeout(total=endpoint.timeout)
            turn = asyncio.Semaphore(endpoint.concurrency)
            async with aiohttp.ClientSession(timeout=limit, headers=endpoint.headers()) as session:

                async def one(prompt: Prompt) -> Reply:
                    async with turn:
                        return await self._answer(prompt, reads[prompt], lambda body: self._post(session, body))

                answers |= zip(todo, await asyncio.gather(*(one(prompt) for prompt in todo)), strict=True)
        made, asked = [], set[Prompt]()
        for prompt in prompts:
            answer = answers[prompt]
            assert answer is not None
            if prompt in asked and answer.value is not None and not answer.cached:
                self.usage.cached += 1
                answer = Reply(answer.value, cached=True)
            asked.add(prompt)
            made.append(answer)
        return made

    def _key(self, prompt: Prompt) -> str:
        return content_key(self._identity, prompt.text, prompt.vote)

    def _kept(self, prompt: Prompt) -> Reply | None:
        if self._cache is None or (kept := self._cache.get(self._key(prompt))) is None:
            return None
        self.usage.cached += 1
        return Reply(dict(kept), cached=True)

    async def _answer(self, prompt: Prompt, read: Read, post: _Post) -> Reply:
        import asyncio

        endpoint, key = self._endpoint, self._key(prompt)
        if endpoint.give_up_after and self._in_a_row >= endpoint.give_up_after:
            return Reply(None, f"not asked: {self._in_a_row} questions in a row had no answer")
        body = {
            "model": endpoint.model,
            "messages": [{"role": "user", "content": prompt.text}],
            "temperature": endpoint.temperature,
            "max_tokens": endpoint.max_tokens,
            **endpoint.extra,
        }
        failure = _Failure("not asked", again=False)
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
                if not error.again:
                    break
                continue
            self._in_a_row = 0
            if self._cache is not None:
                self._cache.put(key, {**value, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
            return Reply(value)
        self._in_a_row += 1
        return Reply(None, failure.kind)

    def _pause(self, key: str, attempt: int, asked: float) -> float:
        """Seconds before a try, spread by the question's own hash, so that many do not come back at once."""
        endpoint = self._endpoint
        spread = int(hashlib.sha256(f"{key} {attempt}".encode()).hexdigest()[:4], 16) / 0xFFFF
        pause: float = endpoint.backoff * 2 ** (attempt - 1) * (0.5 + spread)
        return min(endpoint.max_backoff, max(pause, asked))

    async def _post(self, session: Any, body: dict[str, Any]) -> dict[str, Any]:
        import aiohttp

        url = self._endpoint.url.rstrip("/") + "/chat/completions"
        try:
            # A redirect could carry the question to a server that nobody has configured.
            async with session.post(url, json=body, allow_redirects=False) as response:
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

    def _read(self, value: dict[str, Any], read: Read) -> Mapping[str, Any]:
        usage = value.get("usage")
        for name in ("prompt_tokens", "completion_tokens"):
            number = usage.get(name) if isinstance(usage, dict) else None
            if isinstance(number, int) and not isinstance(number, bool):
                setattr(self.usage, name, getattr(self.usage, name) + number)
        try:
            text = value["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise _Failure("garbage: no message", again=True) from None
        if not isinstance(text, str) or not text.strip():
            raise _Failure("garbage: empty answer", again=True)
        found = read(text)
        if found is None:
            raise _Failure("garbage: no judgement", again=True)
        return found


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0  # a date, or nothing
