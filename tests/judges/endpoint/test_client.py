"""The client of a model's endpoint, against a real HTTP server (the judges that use it test more of it)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from codegrep.errors import ConfigError
from codegrep.judges.endpoint import AnswerCache, ChatClient, Endpoint, Prompt
from tests.chat_server import Answer, said


def read(text: str) -> Mapping[str, Any] | None:
    return None if text == "what?" else {"said": text}


def client_of(server: Any, cache: Path | None = None, **more: Any) -> ChatClient:
    params = {"url": server.url, "model": "m", "backoff": 0.01, "timeout": 5.0, **more}
    return ChatClient(Endpoint.from_params(params, "answer_judge"), AnswerCache(cache) if cache else None)


def test_equal_prompts_are_asked_once_and_a_reader_belongs_to_its_prompt(serve: Any) -> None:
    server = serve(lambda _, body: said(body["messages"][0]["content"].upper()))
    client = client_of(server)
    answers = client.ask([(Prompt(text), read) for text in ("a", "b", "a", "a")])
    assert [(dict(answer.value or {}), answer.cached) for answer in answers] == [
        ({"said": "A"}, False),
        ({"said": "B"}, False),
        ({"said": "A"}, True),
        ({"said": "A"}, True),
    ]
    assert sorted(server.asked) == ["a", "b"] and (client.usage.requests, client.usage.cached) == (2, 2)
    each = client.ask([(Prompt("a"), lambda text: {"n": 1}), (Prompt("b"), lambda text: {"n": 2})])
    assert [dict(answer.value or {}) for answer in each] == [{"n": 1}, {"n": 2}]
    assert client.ask([]) == []


def test_what_its_reader_cannot_use_is_asked_again_and_never_kept(serve: Any, tmp_path: Path) -> None:
    server = serve(lambda number, _: said("what?" if number < 3 else "yes"))
    client = client_of(server, tmp_path, retries=1)
    (answer,) = client.ask([(Prompt("a"), read)])
    assert (answer.value, answer.error) == (None, "garbage: no judgement")
    (answer,) = client.ask([(Prompt("a"), read)])
    assert answer.value == {"said": "yes"} and client.usage.failures == {"garbage: no judgement": 3}
    (again,) = client_of(server, tmp_path).ask([(Prompt("a"), read)])
    assert again.cached and again.value is not None and again.value["said"] == "yes" and len(server.seen) == 4


def test_lines_of_a_cache_that_are_none_are_passed_over(serve: Any, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"key": "k", "answer": "no object"}\n{"key": 3, "answer": {}}\n{"key": "cut')
    assert len(AnswerCache(tmp_path)) == 0


def test_a_redirect_is_not_followed(serve: Any) -> None:
    elsewhere = serve(lambda *_: said("from elsewhere"))
    server = serve(lambda *_: (307, {"Location": f"{elsewhere.url}/chat/completions"}, b""))
    (answer,) = client_of(server).ask([(Prompt("a"), read)])
    assert answer.error == "HTTP 307" and not elsewhere.seen and len(server.seen) == 1


def test_an_endless_answer_is_cut_off(serve: Any) -> None:
    server = serve(lambda *_: (200, {}, b"x" * 5_000_000))
    (answer,) = client_of(server, retries=0).ask([(Prompt("a"), read)])
    assert answer.error == "garbage: endless answer"


def test_a_trickle_is_a_timeout(serve: Any) -> None:
    def stuck(_: int, __: Any) -> Answer:
        time.sleep(1.0)
        return said("late")

    (answer,) = client_of(serve(stuck), retries=0, timeout=0.2).ask([(Prompt("a"), read)])
    assert answer.error == "timeout"


def test_a_server_that_was_given_up_is_asked_again_after_a_reset(serve: Any) -> None:
    ill = [True]
    server = serve(lambda *_: (401, {}, b"") if ill else said("yes"))
    client = client_of(server, give_up_after=2, concurrency=1)
    assert [a.error for a in client.ask([(Prompt(str(n)), read) for n in range(3)])][2].startswith("not asked")
    ill.clear()
    assert client.ask([(Prompt("0"), read)])[0].error.startswith("not asked")
    client.reset()
    assert client.ask([(Prompt("0"), read)])[0].value == {"said": "yes"}


def test_a_key_comes_from_the_environment_alone(serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = serve(lambda *_: said("yes"))
    client = client_of(server, tmp_path, key_variable="A_KEY")
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(ConfigError, match="A_KEY, which should hold the judge's key, is not set"):
        client.ask([(Prompt("a"), read)])
    monkeypatch.setenv("A_KEY", "secret-value")
    client.ask([(Prompt("a"), read)])
    assert server.headers_seen[0]["Authorization"] == "Bearer secret-value"
    assert "secret-value" not in "".join(path.read_text() for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"modell": "m"}, "modell"),
        ({}, "model"),
        ({"model": "m", "url": "ftp://x"}, "url"),
        ({"model": "m", "concurrency": 0}, "concurrency"),
        ({"model": "m", "timeout": 0}, "timeout"),
        ({"model": "m", "retries": -1}, "retries"),
    ],
)
def test_mistakes_are_one_line_that_names_the_group(params: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"answer_judge\.params.*{words}"):
        Endpoint.from_params({"url": "http://x/v1", **params}, "answer_judge")


def test_what_another_process_has_asked_meanwhile_is_not_asked_again(serve: Any, tmp_path: Path) -> None:
    server = serve(lambda _, body: said(body["messages"][0]["content"].upper()))
    one, other = client_of(server, tmp_path), client_of(server, tmp_path)
    assert not one.ask([(Prompt("a"), read), (Prompt("b"), read)])[0].cached
    assert [answer.cached for answer in other.ask([(Prompt("b"), read), (Prompt("c"), read)])] == [True, False]
    assert one.ask([(Prompt("c"), read)])[0].cached and sorted(server.asked) == ["a", "b", "c"]


def test_a_line_that_another_process_is_still_writing(tmp_path: Path) -> None:
    file, cache = tmp_path / "other.jsonl", AnswerCache(tmp_path)
    file.write_text('{"key": "a", "answer": {"n": 1}}\n{"key": "b", "ans')
    cache.refresh()
    assert cache.get("a") == {"n": 1} and len(cache) == 1
    with file.open("a") as out:
        out.write('wer": {"n": 2}}\n')
    cache.refresh()
    assert cache.get("b") == {"n": 2} and len(cache) == 2
