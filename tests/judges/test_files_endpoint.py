"""The judge behind an endpoint, against a real HTTP server that is well, slow, overloaded, broken, or gone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from codegrep.errors import ConfigError
from codegrep.judges.endpoint import AnswerCache, ChatClient, Endpoint, Prompt
from codegrep.judges.files import NOT_RELEVANT, RELEVANT, Question, prompt
from codegrep.judges.files_endpoint import EndpointJudge
from tests.chat_server import Answer, Server, said

QUESTIONS = [Question(f"src/f{n}.py", f"notes {n}", "the task") for n in range(6)]


def judge_of(server: Server, **more: Any) -> EndpointJudge:
    given = {"backoff": 0.01, "timeout": 5.0, **more}
    return EndpointJudge(url=server.url, model="m", **given)


def test_verdicts_tokens_and_the_request(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    server = serve(lambda _, body: said("NOT_RELEVANT" if "f3.py" in body["messages"][0]["content"] else "RELEVANT"))
    judge = judge_of(server, key_variable="A_KEY", extra={"top_p": 0.95})
    verdicts = judge.judge(QUESTIONS)
    assert [v.label for v in verdicts] == [RELEVANT] * 3 + [NOT_RELEVANT] + [RELEVANT] * 2
    assert verdicts[3].votes == (0, 1) and judge.label == "llm:m"
    assert (judge.usage.requests, judge.usage.prompt_tokens, judge.usage.completion_tokens) == (6, 60, 12)
    assert server.seen[0]["top_p"] == 0.95 and server.headers_seen[0]["Authorization"] == "Bearer secret"


def test_no_more_than_so_many_at_once(serve: Any) -> None:
    def slow(_: int, __: Any) -> Answer:
        time.sleep(0.05)
        return said("RELEVANT")

    server = serve(slow)
    assert all(v.label for v in judge_of(server, concurrency=3).judge(QUESTIONS * 3))
    assert server.most <= 3


def test_rate_limits_errors_and_garbage_are_asked_again(serve: Any) -> None:
    bad: list[Answer] = [
        (429, {"Retry-After": "0.05"}, b"slow down"),
        (500, {}, b"oops"),
        (200, {}, b"<html>garbage"),
        (200, {}, b"[1, 2]"),
        (200, {}, b'{"choices": []}'),
        said(""),
        said(None),
    ]
    server = serve(lambda number, _: bad[number] if number < len(bad) else said("RELEVANT"))
    judge = judge_of(server, retries=10, concurrency=1)
    assert [v.label for v in judge.judge(QUESTIONS[:1])] == [RELEVANT]
    assert judge.usage.retries == len(bad)
    assert judge.usage.failures["HTTP 429"] == 1 and judge.usage.failures["garbage: no JSON"] == 1


def test_an_outage_is_an_error_of_its_row_and_never_a_label(serve: Any) -> None:
    def mostly(_: int, body: dict[str, Any]) -> Answer:
        return (503, {}, b"") if "f2.py" in body["messages"][0]["content"] else said("RELEVANT")

    verdicts = judge_of(serve(mostly), retries=1).judge(QUESTIONS)
    assert [v.label for v in verdicts] == [RELEVANT, RELEVANT, "", RELEVANT, RELEVANT, RELEVANT]
    assert verdicts[2].error == "HTTP 503"


def test_a_slow_server_is_a_timeout(serve: Any) -> None:
    def stuck(_: int, __: Any) -> Answer:
        time.sleep(1.0)
        return said("RELEVANT")

    (verdict,) = judge_of(serve(stuck), retries=0, timeout=0.2).judge(QUESTIONS[:1])
    assert (verdict.label, verdict.error) == ("", "timeout")


def test_a_refused_request_is_not_repeated(serve: Any) -> None:
    server = serve(lambda *_: (401, {}, b"no"))
    (verdict,) = judge_of(server).judge(QUESTIONS[:1])
    assert verdict.error == "HTTP 401" and len(server.seen) == 1


def test_a_dead_endpoint_is_given_up(serve: Any) -> None:
    server = serve(lambda *_: said("RELEVANT"))
    server.shutdown()
    server.server_close()
    judge = judge_of(server, retries=1, give_up_after=4, concurrency=1)
    verdicts = judge.judge(QUESTIONS * 10)
    assert not any(v.label for v in verdicts)
    assert judge.usage.requests == 8  # four questions, twice each
    assert "not asked" in verdicts[-1].error


def test_answers_are_paid_for_once(serve: Any, tmp_path: Path) -> None:
    server = serve(lambda number, _: (500, {}, b"") if number == 2 else said("RELEVANT"))
    first = judge_of(server, cache=str(tmp_path), retries=0, concurrency=1)
    assert [bool(v.label) for v in first.judge(QUESTIONS)] == [True, True, False, True, True, True]
    with next(tmp_path.glob("*.jsonl")).open("a") as out:
        out.write('{"key": "cut off')  # as a killed process leaves it
    again = judge_of(server, cache=str(tmp_path), concurrency=1)
    assert all(v.label for v in again.judge(QUESTIONS))
    assert (again.usage.cached, again.usage.requests) == (5, 1)  # the failure was not kept, and is asked again
    other = judge_of(server, cache=str(tmp_path), temperature=0.7)
    other.judge(QUESTIONS[:1])
    assert other.usage.cached == 0


def test_labels_that_another_reading_kept_are_not_used(serve: Any, tmp_path: Path) -> None:
    server = serve(lambda number, body: said("I cannot say it is NOT_RELEVANT, so RELEVANT"))
    question = QUESTIONS[0]
    kept = {"label": NOT_RELEVANT, "ambiguous": False, "text": ""}
    without_a_version = ChatClient(Endpoint(server.url, "m"), AnswerCache(tmp_path))
    assert without_a_version.ask([(Prompt(prompt(question)), lambda text: kept)])[0].value == kept
    judge = judge_of(server, cache=str(tmp_path))
    assert [v.label for v in judge.judge([question])] == [RELEVANT]
    assert [v.label for v in judge.judge([question])] == [RELEVANT]
    assert judge.usage.requests == 1


def test_votes(serve: Any) -> None:
    server = serve(lambda number, _: said(["NOT_RELEVANT", "RELEVANT", "NOT_RELEVANT"][number]))
    (verdict,) = judge_of(server, votes=3, concurrency=1).judge(QUESTIONS[:1])
    assert (verdict.label, verdict.votes) == (NOT_RELEVANT, (1, 2))


def test_mistakes_in_its_settings_are_one_line() -> None:
    with pytest.raises(ConfigError, match="modell"):
        EndpointJudge(url="http://x/v1", modell="m")
    with pytest.raises(ConfigError, match="url"):
        EndpointJudge(url="x", model="m")
