"""The judge of turns: what it is asked, what is read from its answers, and a real server that misbehaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.config import ProcessConfig
from codegrep.rewards.signals import load_process
from codegrep.rewards.turn_credit import CallFacts, Trajectory, TurnFacts
from codegrep.rewards.turn_judge import judged, parse_scores, prompt, scores_by

TRAJECTORY = Trajectory(
    (
        TurnFacts((CallFacts("grep x", ("a.py", "b.py")), CallFacts("read zz", (), ok=False)), text="I look for x."),
        TurnFacts((CallFacts("read a.py", ("a.py",)),), text="Now a.py."),
        TurnFacts(submission=("a.py",), text="Done."),
    ),
    frozenset({"a.py"}),
    "x is broken",
)


def test_the_prompt_holds_steps_reference_and_no_answer() -> None:
    text = prompt(TRAJECTORY)
    assert "x is broken" in text and "found: a.py" in text
    assert "- grep x -> a.py, b.py" in text and "- read zz -> failed" in text
    assert "Step 2" in text and "Step 3" not in text and "Done." not in text
    long = Trajectory((TurnFacts(text="y" * 9000),), frozenset(), "z" * 20_000)
    assert len(prompt(long)) < 10_000 and "characters …]" in prompt(long)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"scores": [1, 0.2]}', [1.0, 0.2]),
        ('Sure:\n```json\n{"scores": [0.5, 0]}\n```', [0.5, 0.0]),
        ('<think>{"scores": [1, 1]}</think>{"scores": [0.5, 0.5]}', [0.5, 0.5]),
        ('{"scores": [0.1, 0.1]} no, {"scores": [0.9, 0.9]}', [0.9, 0.9]),
        ('{"scores": [1]}', None),
        ('{"scores": [1, 2]}', None),
        ('{"scores": [1, "0.5"]}', None),
        ('{"scores": [true, false]}', None),
        ('{"scores": [NaN, 0.5]}', None),
        ('{"scores": 1}', None),
        ("[1, 0.5]", None),
        ("", None),
    ],
)
def test_answers(text: str, expected: list[float] | None) -> None:
    assert parse_scores(text, 2) == expected


@given(st.text(max_size=200), st.integers(0, 5))
def test_any_text_is_survived(text: str, count: int) -> None:
    scores = parse_scores(text, count)
    assert scores is None or (len(scores) == count and all(0 <= score <= 1 for score in scores))


def test_only_a_failed_answer_is_asked_again() -> None:
    answers = iter([OSError("away"), "garbage", '{"scores": [0.3, 0.7]}', AssertionError("asked once too often")])

    def ask(text: str) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert scores_by(TRAJECTORY, ask, retries=2) == [0.3, 0.7, None]
    assert scores_by(TRAJECTORY, lambda text: "garbage", retries=1) is None
    assert scores_by(Trajectory(TRAJECTORY.turns[2:], frozenset()), lambda text: pytest.fail("asked")) == [None]


class Server(BaseHTTPRequestHandler):
    replies: list[tuple[int, Any]]
    seen: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        status, reply = self.replies.pop(0)
        raw = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Server]]]:
    handler = type("Handler", (Server,), {"replies": [], "seen": []})
    http = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/v1", handler
    http.shutdown()
    http.server_close()
    thread.join()


def reply(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}}]}


def test_a_server(server: tuple[str, type[Server]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = server
    monkeypatch.setenv("JUDGE_KEY", "secret")
    handler.replies += [(503, b"busy"), (200, b"<html>"), (200, reply('{"scores": [1.0, 0.4]}'))]
    scores = judged(TRAJECTORY, url=url, model="m", key_variable="JUDGE_KEY", retries=2, backoff=0.0)
    assert scores == [1.0, 0.4, None]
    assert [request["path"] for request in handler.seen] == ["/v1/chat/completions"] * 3
    assert handler.seen[0]["key"] == "Bearer secret" and handler.seen[0]["model"] == "m"
    assert handler.seen[0]["messages"][0]["content"] == prompt(TRAJECTORY)


def test_a_server_that_is_not_there_is_no_error() -> None:
    assert judged(TRAJECTORY, url="http://127.0.0.1:9/v1", model="m", retries=1, backoff=0.0, timeout=5.0) is None
    with pytest.raises(ValueError, match="url is 'file:///etc/passwd'"):
        judged(TRAJECTORY, url="file:///etc/passwd", model="m")


def test_it_is_loaded_without_being_asked() -> None:
    params = {"url": "http://127.0.0.1:9/v1", "model": "m", "timeout": 5.0, "retries": 0}
    scoring = load_process(ProcessConfig("judge", "codegrep.rewards.turn_judge.judged", params, True, 0.1, 16))
    assert scoring.concurrency == 16
    assert scoring.scores(TRAJECTORY) == (None, "invalid")
