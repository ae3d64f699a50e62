"""For all tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.chat_server import Answer, Server

# An example may take long on a busy machine; tests are no clocks.
settings.register_profile("codegrep", deadline=None)
settings.load_profile("codegrep")


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[int, dict[str, Any]], Answer]], Server]]:
    """Starts servers that answer by a function of (number of the request, its body)."""
    servers: list[Server] = []

    def start(answer: Callable[[int, dict[str, Any]], Answer]) -> Server:
        server = Server(answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
