from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from codegrep.config import OpenAIConfig
from codegrep.engines import openai_engine
from codegrep.engines.engine import Engine, GenerationRequest, Sampling
from codegrep.engines.openai_engine import OpenAIEngine
from codegrep.errors import ConfigError, InfrastructureError

CONFIG = OpenAIConfig("http://judge.test/v1/", "m", attempts=3)
SAMPLING = Sampling(max_tokens=9, temperature=0.5)
GOOD = {
    "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 4, "completion_tokens": 1},
}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_engine, "_pause", lambda attempt, said: 0.0)


def ask(answer: Callable[[httpx2.Request], httpx2.Response], config: OpenAIConfig = CONFIG, **kwargs: Any) -> Any:
    async def one() -> Any:
        engine = OpenAIEngine(config, httpx2.MockTransport(answer))
        try:
            return await engine.complete([{"role": "user", "content": "?"}], SAMPLING, **kwargs)
        finally:
            await engine.close()
            await engine.close()

    return asyncio.run(one())


def test_request_and_reply() -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json=GOOD)

    reply = ask(answer, seed=5)
    assert (reply.text, reply.finish_reason) == ("yes", "stop")
    assert str(seen[0].url) == "http://judge.test/v1/chat/completions"
    body = json.loads(seen[0].content)
    assert body["seed"] == 5 and body["max_tokens"] == 9
    assert "top_k" not in body and "authorization" not in seen[0].headers


def test_busy_and_broken_answers_are_asked_again() -> None:
    answers = [httpx2.Response(429), httpx2.Response(200, text="<html>"), httpx2.Response(200, json=GOOD)]
    assert ask(lambda request: answers.pop(0)).text == "yes"

    def lost(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with pytest.raises(InfrastructureError, match=r"no answer in 3 attempts \(last: ConnectError refused"):
        ask(lost)


def test_a_refusal_is_said_at_once() -> None:
    count = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        count.append(1)
        return httpx2.Response(401, text="bad key")

    with pytest.raises(ConfigError, match=r"refuses the request \(status 401: bad key\)"):
        ask(refuse)
    assert len(count) == 1


@pytest.mark.parametrize("odd", [{}, {"choices": []}, {"choices": [{"message": None}]}, [1]])
def test_an_answer_that_is_none(odd: Any) -> None:
    with pytest.raises(InfrastructureError, match="cannot be read"):
        ask(lambda request: httpx2.Response(200, json=odd))


def test_key_comes_from_the_environment_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OpenAIConfig("http://judge.test/v1", "m", key_variable="JUDGE_KEY")
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(ConfigError, match="JUDGE_KEY, which is not set"):
        OpenAIEngine(config)
    monkeypatch.setenv("JUDGE_KEY", "s3cret")
    seen: list[str] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers["authorization"])
        return httpx2.Response(403)

    with pytest.raises(ConfigError) as error:
        ask(refuse, config)
    assert seen == ["Bearer s3cret"] and "s3cret" not in str(error.value)


def test_training_is_refused_in_one_line() -> None:
    engine = OpenAIEngine(CONFIG)
    assert isinstance(engine, Engine)
    with pytest.raises(ConfigError, match="gives text and no tokens") as error:
        asyncio.run(engine.generate(GenerationRequest((1,), SAMPLING)))
    assert "\n" not in str(error.value)
