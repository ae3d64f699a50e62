"""Many clients, changing files, hostile questions: no wrong path, no escape, nothing stuck, memory flat."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client

from codegrep.serve.retriever import MAX_ANSWERS, Retriever
from codegrep.serve.service import MAX_RECEIVED
from codegrep.serve.working_tree import index_folder
from tests.serve.test_server import environment, http_server

CLIENTS = 16
WORDS = ("parse", "render", "order", "basket", "invoice", "token", "stream", "cache", "index", "merge")


def fill(root: Path, files: int) -> None:
    for number in range(files):
        one, other = WORDS[number % 10], WORDS[number // 10 % 10]
        folder = root / f"pkg{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{one}_{other}_{number}.py").write_text(
            f"class {one.title()}{number}:\n    def {other}_{number}(self, {one}):\n        return {one}\n\n\n"
            f"def {one}_{other}({other}):\n    return {number}\n"
        )
    subprocess.run(["git", "init", "-q", str(root)], check=True)


def hostile(chance: random.Random, outside: Path) -> tuple[str, dict[str, Any]]:
    """A question that is refused, or answered within the tree."""
    return chance.choice(
        [
            ("find_files", {"issue": "basket", "repo": str(outside)}),
            ("find_files", {"issue": "basket", "repo": "../outside"}),
            ("find_files", {"issue": "basket", "repo": "/"}),
            ("search", {"query": "basket", "path": "../outside/*"}),
            ("find_files", {"issue": "x" * (MAX_RECEIVED + 1)}),
            ("find_files", {"issue": "(" * 50_000 + "basket"}),
            ("find_files", {"issue": {"a": 1}, "k": "many"}),
            ("find_files", {"issue": "basket", "k": MAX_ANSWERS + 1}),
            ("search", {"query": "basket", "pattern": "(a+)+$" * 50}),
            ("search", {"query": "basket", "pattern": "(.*){200}(.*){200}"}),
            ("search", {"query": "basket", "pattern": "(x{900}){900}"}),
            ("search", {"query": "basket", "path": "*a" * 400}),
            ("search", {"query": "\0\ud7ff" * 100}),
            ("nonsense", {"a": 1}),
        ]
    )


def soak(root: Path, outside: Path, questions: int) -> dict[str, Any]:
    """Ask; return what came of it."""
    files = sorted(root.rglob("*.py"))
    seen = {str(path.relative_to(root)) for path in files}
    counts = {"answered": 0, "refused": 0, "wrong": 0, "escaped": 0}
    memory: list[int] = []

    async def client(number: int, url: str) -> None:
        chance = random.Random(number)
        async with Client(url) as session:
            for _ in range(questions // CLIENTS):
                bad = chance.random() < 0.1
                if bad:
                    tool, arguments = hostile(chance, outside)
                else:
                    text = " ".join(chance.sample(WORDS, 3))
                    tool, arguments = chance.choice([("find_files", {"issue": text}), ("search", {"query": text})])
                with anyio.fail_after(120):
                    result = await session.call_tool(tool, arguments)
                if result.is_error:
                    assert bad, result.content
                    counts["refused"] += 1
                    continue
                counts["answered"] += 1
                for answer in (result.structured_content or {})["answers"]:
                    counts["escaped"] += "outside" in str(answer) or answer["path"].startswith(("/", ".."))
                    counts["wrong"] += answer["path"] not in seen

    async def change(group: anyio.abc.TaskGroup) -> None:
        chance = random.Random(0)
        for round_ in range(1_000_000):
            path = root / "pkg0" / f"new_{round_ % 20}.py"
            seen.add(str(path.relative_to(root)))
            path.write_text(f"def basket_{round_}():\n    return {round_}\n")
            chance.choice(files).write_text(f"def order_{round_}(basket):\n    return basket\n")
            (root / "pkg0" / f"new_{(round_ + 10) % 20}.py").unlink(missing_ok=True)
            await anyio.sleep(0.3)

    async def main() -> None:
        with http_server("--repo", str(root)) as (url, server):
            process = psutil.Process(server.pid)
            async with anyio.create_task_group() as group:
                group.start_soon(change, group)
                for part in range(4):
                    async with anyio.create_task_group() as clients:
                        for number in range(CLIENTS):
                            clients.start_soon(client, part * CLIENTS + number, url)
                    memory.append(process.memory_info().rss)
                group.cancel_scope.cancel()

    questions //= 4
    anyio.run(main)
    return {**counts, "memory": memory}


def check(root: Path, questions: int, files: int) -> None:
    fill(root / "shop", files)
    outside = root / "outside"
    outside.mkdir()
    (outside / "basket.py").write_text("def basket_outside():\n    pass\n")
    (root / "shop" / "way.py").symlink_to(outside / "basket.py")
    (root / "shop" / "way").symlink_to(outside)
    came = soak(root / "shop", outside, questions)
    print(came)
    assert came["wrong"] == came["escaped"] == 0
    assert came["answered"] + came["refused"] == questions // 4 // CLIENTS * CLIENTS * 4
    assert came["refused"] > 0
    assert came["memory"][-1] < 1.3 * came["memory"][0] + 20_000_000  # caches of numpy and the allocator settle


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_some_clients_with_hostile_ones_among_them(tmp_path: Path) -> None:
    check(tmp_path, 192, 60)


@pytest.mark.slow
def test_a_thousand_questions_from_sixteen_clients(tmp_path: Path) -> None:
    check(tmp_path, 1024, 400)


def test_kill_9_while_indexing_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "shop"
    fill(root, 2500)
    code = f"import codegrep; codegrep.Retriever.load('bm25').refresh({str(root)!r})"
    killed = subprocess.Popen([sys.executable, "-c", code], env=environment(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(index_folder(root).glob("*/*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    read: list[str] = []
    import codegrep.index.store as store

    real = store.digest_files
    monkeypatch.setattr(
        store, "digest_files", lambda files, model: read.extend(p for p, _ in files) or real(files, model)
    )
    found = Retriever.load("bm25").search("basket order", root)
    assert found and all((root / answer.path).is_file() for answer in found)
    whole = Retriever.load("bm25").search("basket order", root)
    assert whole == found and len(set(read)) == len(read) <= 2500
