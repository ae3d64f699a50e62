"""A real HTTP server that speaks as much of the chat-completions protocol as judges need, well or badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


def said(text: object, **more: Any) -> Answer:
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    body = {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage, **more}
    return 200, {}, json.dumps(body).encode()


class Server(ThreadingHTTPServer):
    """Answers by a function of (number of the request, its body)."""

    daemon_threads = True

    def __init__(self, answer: Callable[[int, dict[str, Any]], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.lock = answer, threading.Lock()
        self.seen: list[dict[str, Any]] = []
        self.headers_seen: list[dict[str, str]] = []
        self.now = self.most = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def asked(self) -> list[str]:
        """Texts of the questions so far."""
        return [body["messages"][0]["content"] for body in self.seen]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.seen)
            self.server.seen.append(body)
            self.server.headers_seen.append({"path": self.path, **dict(self.headers)})
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        try:
            status, headers, data = self.server.answer(number, body)
        finally:  # before the answer is sent: whoever has it may ask the next at once
            with self.server.lock:
                self.server.now -= 1
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # the client went away

    def log_message(self, *_: Any) -> None:
        """Quiet."""
