"""`codegrep serve` with the MCP package's own client, over standard input and output and over HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

import codegrep
from codegrep.cli import COMMANDS, run
from codegrep.errors import CodegrepError, ConfigError
from codegrep.serve.retriever import Answer, Retriever
from codegrep.serve.server import mcp_server
from codegrep.serve.service import MAX_RECEIVED, Bounds, Service

ROOT = Path(codegrep.__file__).parents[1]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "shop"
    root.mkdir()
    (root / "basket.py").write_text("class Basket:\n    def total(self):\n        return 0\n")
    for number in range(8):
        (root / f"other{number}.py").write_text(f"def unrelated_{number}():\n    return {number}\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CACHE_HOME") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


@contextmanager
def http_server(*options: str, port: int = 0, **variables: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "codegrep", "serve", "--http", "--port", str(port), *options]
    server = subprocess.Popen(command, cwd=ROOT, env=environment(**variables), stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        found = re.search(r"http://[^ ]+/mcp", line)
        assert found, line + server.stderr.read()
        yield found.group(), server
    finally:
        server.kill()
        server.communicate()


def paths(result: Any) -> list[str]:
    assert not result.is_error, result.content
    return [answer["path"] for answer in result.structured_content["answers"]]


def said(result: Any) -> str:
    assert result.is_error
    return str(result.content[0].text)


def get(url: str, token: str = "") -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def test_over_standard_input_and_output_a_client_lists_calls_and_edits(shop: Path) -> None:
    async def main() -> None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "codegrep", "serve", "--repo", str(shop)],
            env=environment(),
            cwd=str(ROOT),
        )
        async with Client(stdio_client(parameters)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"find_files", "search"}
            assert {"issue", "repo"} <= set(tools["find_files"].input_schema["properties"])
            found = await client.call_tool("find_files", {"issue": "The basket total is wrong", "repo": str(shop)})
            assert paths(found)[0] == "basket.py"
            assert found.content[0].text.startswith("basket.py:2-3  def total(self)")
            (shop / "zebra.py").write_text("def zebra():\n    pass\n")
            found = await client.call_tool("search", {"query": "zebra", "path": "*.py", "pattern": "def z"})
            assert paths(found) == ["zebra.py"]

    anyio.run(main)


def test_over_http_a_client_survives_a_restart(shop: Path) -> None:
    async def ask(client: Client) -> list[str]:
        return paths(await client.call_tool("find_files", {"issue": "basket total", "repo": "shop"}))

    async def main() -> None:
        with http_server("--repo", str(shop)) as (url, server):
            port = int(url.split(":")[2].split("/")[0])
            async with Client(url) as client:
                assert (await ask(client))[0] == "basket.py"
                assert '"status":"ok"' in get(url.replace("/mcp", "/health"))
                assert 'codegrep_questions_total{outcome="answered",tool="find_files"} 1.0' in get(
                    url.replace("/mcp", "/metrics")
                )
                server.kill()
                server.wait()
                with http_server("--repo", str(shop), port=port):
                    assert (await ask(client))[0] == "basket.py"

    anyio.run(main)


def test_with_a_token_only_who_bears_it_is_answered(shop: Path) -> None:
    with http_server("--repo", str(shop), CODEGREP_TOKEN="secret") as (url, _):
        for token in ("", "wrong"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                get(url.replace("/mcp", "/metrics"), token)
        assert "codegrep_waiting" in get(url.replace("/mcp", "/metrics"), "secret")
        assert "ok" in get(url.replace("/mcp", "/health"))


def test_what_cannot_be_served_is_one_line(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEGREP_TOKEN", raising=False)
    with http_server("--repo", str(shop)) as (url, _):
        port = url.split(":")[2].split("/")[0]
        with pytest.raises(ConfigError, match="in use"):
            run(COMMANDS["serve"], ["--http", "--port", port, "--repo", str(shop)])
    with pytest.raises(ConfigError, match="there is no token"):
        run(COMMANDS["serve"], ["--http", "--host", "0.0.0.0"])
    with pytest.raises(CodegrepError, match="no folder"):
        run(COMMANDS["serve"], ["--http", "--port", "0", "--repo", str(shop / "nowhere")])


def asked(service: Service, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The results of calls through a client in this process."""

    async def main() -> list[Any]:
        async with Client(mcp_server(service)) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(main)


def test_only_folders_below_the_served_ones_are_searched(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "key.py").write_text("def basket():\n    pass\n")
    (shop / "out").symlink_to(tmp_path / "other")
    (shop / "part").mkdir()
    (shop / "part" / "basket.py").write_text("def basket():\n    pass\n")
    outside = [
        str(tmp_path / "other"),
        str(shop / ".."),
        str(shop / "out"),
        str(shop / ".git"),
        "/",
        "a\0b",
        "x" * 9000,
        str(tmp_path / "none"),
    ]
    service = Service(Retriever("bm25"), [shop])
    results = asked(service, *(("find_files", {"issue": "basket", "repo": repo}) for repo in outside))
    assert all("is not served" in said(result) for result in results)
    inside = asked(service, ("find_files", {"issue": "basket", "repo": str(shop / "part")}))
    assert paths(inside[0]) == ["basket.py"]


def test_what_cannot_be_asked_is_refused_with_a_reason(shop: Path) -> None:
    service = Service(Retriever("bm25"), [shop])
    results = asked(
        service,
        ("find_files", {"issue": "x" * (MAX_RECEIVED + 1)}),
        ("find_files", {"issue": ""}),
        ("search", {"query": "basket", "pattern": "("}),
        ("search", {"query": "basket", "pattern": "(a{1000}){1000}"}),
        ("find_files", {"issue": ["basket"]}),
        ("find_files", {"issue": "basket", "k": -1}),
        ("search", {"query": "basket", "path": "x" * 5000}),
    )
    words = ("characters", "empty", "regular expression", "regular expression", "issue", "k", "path")
    for result, word in zip(results, words, strict=True):
        assert word in said(result)


class Slow(Retriever):
    """Takes its time to index."""

    def __init__(self, seconds: float) -> None:
        super().__init__("bm25")
        self.seconds = seconds

    def refresh(self, repo: str | Path = ".", *, progress: Any = None) -> int:
        progress(10, 50)
        time.sleep(self.seconds)
        return super().refresh(repo)


def test_the_first_call_tells_its_progress_and_ends_in_time(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegrep.serve.service._REPORT", 0.05)
    heard: list[str] = []

    async def progress(seconds: float, total: float | None, message: str | None) -> None:
        heard.append(str(message))

    async def main() -> None:
        service = Service(Slow(1.0), [shop], Bounds(seconds=0.3))
        async with Client(mcp_server(service)) as client:
            late = await client.call_tool("find_files", {"issue": "basket"}, progress_callback=progress)
            assert "10 of 50 files are indexed. That goes on" in said(late)
            while True:
                result = await client.call_tool("find_files", {"issue": "basket"})
                if not result.is_error:
                    break
            assert paths(result)[0] == "basket.py"

    anyio.run(main)
    assert heard and "indexing shop for the first time: 10 of 50 files" in heard[0]


def test_a_question_too_many_is_refused_and_a_cancelled_one_makes_room(shop: Path) -> None:
    async def main() -> None:
        service = Service(Slow(2.0), [shop], Bounds(questions=1))
        async with Client(mcp_server(service)) as client:
            with anyio.move_on_after(0.5):  # the client leaves, and says so
                await client.call_tool("find_files", {"issue": "basket"})
            with anyio.fail_after(10):
                while service._inside:
                    await anyio.sleep(0.01)
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "find_files", {"issue": "basket"})
                while not service._inside:
                    await anyio.sleep(0.01)
                assert "questions are waiting" in said(await client.call_tool("find_files", {"issue": "basket"}))
        assert b'outcome="cancelled",tool="find_files"} 1.0' in service.metrics()

    anyio.run(main)


def test_a_policy_reports_its_turns_and_stops_when_nobody_waits(shop: Path) -> None:
    class Policy(Retriever):
        turns = 0

        def search(self, text: str, repo: Any = ".", k: int = 5, **more: Any) -> list[Answer]:
            while True:
                self.turns += 1
                more["on_turn"](self.turns, [])

    heard: list[str] = []

    async def progress(seconds: float, total: float | None, message: str | None) -> None:
        heard.append(str(message))

    async def main() -> int:
        policy = Policy("bm25")
        async with Client(mcp_server(Service(policy, [shop], Bounds(seconds=1.0)))) as client:
            assert "no answer after 1 s" in said(
                await client.call_tool("find_files", {"issue": "basket"}, progress_callback=progress)
            )
        await anyio.sleep(0.2)
        before = policy.turns
        await anyio.sleep(0.2)
        return policy.turns - before

    assert anyio.run(main) == 0
    assert heard[0] == "turn 1: 0 calls"
