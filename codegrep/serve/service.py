"""Questions of many clients about folders that are served: bounded, counted, and refused with a reason."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio import from_thread, to_thread
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from codegrep.errors import CodegrepError, RepositoryError
from codegrep.index.tree import SKIPPED_FOLDERS
from codegrep.serve.retriever import Answer, Retriever
from codegrep.serve.working_tree import check_folder

MAX_RECEIVED = 200_000
"""Characters of a text that is taken; longer ones are refused."""
_MAX_PATH = 4_096
_INDEXING = 2  # folders that are indexed at the same time for the first time
_POLL, _REPORT = 0.02, 1.0  # seconds
Report = Callable[[float, str], Coroutine[Any, Any, None]]
"""Told the seconds since the question came, and what is being done."""


class RefusalError(Exception):
    """A question that is not answered; the text says why and what to do."""


@dataclass
class _Job:
    """A folder that is indexed for the first time, in a thread of its own."""

    done: int = 0
    total: int = 0
    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def told(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def __str__(self) -> str:
        return f"{self.done} of {self.total} files are indexed" if self.total else "its files are being listed and read"


@dataclass(frozen=True)
class Bounds:
    """Limits of a service.

    Attributes:
        seconds: for one question, waiting included.
        questions: at the same time, waiting ones included.
        workers: questions that are worked on at the same time.
    """

    seconds: float = 30.0
    questions: int = 64
    workers: int = max(2, min(8, os.cpu_count() or 1))


class Service:
    """Answers questions about folders.

    Args:
        retriever: that answers.
        folders: that are served, with everything below them.
        bounds: limits.

    Raises:
        RepositoryError: a folder does not exist or cannot be read.
    """

    def __init__(self, retriever: Retriever, folders: Sequence[Path], bounds: Bounds | None = None) -> None:
        self._retriever = retriever
        self._bounds = bounds or Bounds()
        for folder in folders:
            check_folder(folder)
        self.folders = tuple(dict.fromkeys(folder.resolve() for folder in folders))
        self._jobs: dict[Path, _Job] = {}
        self._indexing = threading.Semaphore(_INDEXING)
        self._slots: anyio.CapacityLimiter | None = None
        self._inside = 0
        self._registry = CollectorRegistry()
        self._counted = Counter("codegrep_questions", "Questions", ["tool", "outcome"], registry=self._registry)
        self._seconds = Histogram("codegrep_seconds", "Seconds of a question", ["tool"], registry=self._registry)
        gauges = {
            "codegrep_waiting": ("Questions that are worked on or wait", lambda: self._inside),
            "codegrep_folders": ("Folders whose index is in memory", lambda: len(retriever.loaded())),
            "codegrep_units": ("Units of the indexes in memory", lambda: sum(retriever.loaded().values())),
        }
        for name, (words, value) in gauges.items():
            Gauge(name, words, registry=self._registry).set_function(value)

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def folder(self, repo: str) -> Path:
        """Return the folder that a client names: by its path, by the name of a served folder, or "" for the only one.

        Raises:
            RefusalError: it is not served; whether it exists is not told.
        """
        if not repo and len(self.folders) == 1:
            return self.folders[0]
        named = [folder for folder in self.folders if folder.name == repo]
        if len(named) == 1:
            return named[0]
        try:
            if repo and "\0" not in repo and len(repo) <= _MAX_PATH:
                real = Path(repo).resolve(strict=True)
                for folder in self.folders if real.is_dir() else ():
                    below = real.relative_to(folder).parts if real.is_relative_to(folder) else (".git",)
                    if not SKIPPED_FOLDERS.intersection(below):  # what git keeps is not for clients
                        return real
        except (OSError, RuntimeError, ValueError):
            pass
        served = ", ".join(map(str, self.folders))
        raise RefusalError(f"the repository {repo[:200]!r} is not served. Served are: {served}")

    async def find_files(self, issue: str, repo: str, k: int, why: bool, report: Report) -> list[Answer]:
        """Rank files by an issue; see `Retriever.search`.

        Raises:
            RefusalError: with the reason.
        """

        def work(root: Path, on_turn: Callable[[int, Sequence[object]], None]) -> list[Answer]:
            return self._retriever.search(issue, root, k, why=why, on_turn=on_turn)

        return await self._ask("find_files", issue, repo, work, report)

    async def search(
        self, query: str, repo: str, k: int, path: str | None, pattern: str | None, report: Report
    ) -> list[Answer]:
        """Rank places by a query; see `Retriever.places`.

        Raises:
            RefusalError: with the reason.
        """

        def work(root: Path, _: object) -> list[Answer]:
            return self._retriever.places(query, root, k, path=path, pattern=pattern)

        return await self._ask("search", query, repo, work, report)

    async def _ask(
        self, tool: str, text: str, repo: str, work: Callable[[Path, Callable[..., None]], list[Answer]], report: Report
    ) -> list[Answer]:
        began, outcome = time.monotonic(), "cancelled"
        root: Path | None = None
        try:
            if self._inside >= self._bounds.questions:
                raise RefusalError(f"{self._inside} questions are waiting already. Ask again in a few seconds")
            self._inside += 1
            try:
                if len(text) > MAX_RECEIVED:
                    raise RefusalError(f"the text has {len(text)} characters. Send {MAX_RECEIVED} at most")
                root = self.folder(repo)
                with anyio.fail_after(self._bounds.seconds):
                    await self._warm(root, began, report)
                    answers = await self._in_thread(work, root, began, report)
            finally:
                self._inside -= 1
            outcome = "answered" if answers else "nothing"
            return answers
        except TimeoutError:
            outcome = "late"
            job = self._jobs.get(root) if root else None
            late = f"no answer after {self._bounds.seconds:g} s"
            raise RefusalError(
                f"{late}: {root} is indexed for the first time, {job}. That goes on: ask again in a moment"
                if job
                else f"{late}. Ask a narrower question, or again later"
            ) from None
        except RefusalError:
            outcome = "refused"
            raise
        except (CodegrepError, ValueError) as error:
            outcome = "refused"
            raise RefusalError(str(error)) from error
        except Exception:
            outcome = "failed"
            raise
        finally:
            self._counted.labels(tool, outcome).inc()
            self._seconds.labels(tool).observe(time.monotonic() - began)

    async def _warm(self, root: Path, began: float, report: Report) -> None:
        """Wait until a folder is indexed for the first time; other folders are searched meanwhile."""
        if str(root) in self._retriever.loaded() and root not in self._jobs:
            return
        job = self._jobs.get(root)
        if job is None:
            job = self._jobs[root] = _Job()
            threading.Thread(target=self._index, args=(root, job), daemon=True).start()
        told = began
        while not job.ended.is_set():
            await anyio.sleep(_POLL)
            if time.monotonic() - told >= _REPORT:
                told = time.monotonic()
                await report(told - began, f"indexing {root.name} for the first time: {job}")
        if job.error is not None:
            raise job.error

    def _index(self, root: Path, job: _Job) -> None:
        try:
            with self._indexing:
                self._retriever.refresh(root, progress=job.told)
        except Exception as error:
            job.error = (
                error if isinstance(error, CodegrepError) else RepositoryError(f"{root} cannot be read: {error}")
            )
        finally:
            self._jobs.pop(root, None)
            job.ended.set()

    async def _in_thread(
        self, work: Callable[[Path, Callable[..., None]], list[Answer]], root: Path, began: float, report: Report
    ) -> list[Answer]:
        if self._slots is None:
            self._slots = anyio.CapacityLimiter(self._bounds.workers)
        left = threading.Event()

        def on_turn(number: int, results: Sequence[object]) -> None:
            if left.is_set():
                raise asyncio.CancelledError  # ends the rollout of a question that nobody waits for
            from_thread.run(report, time.monotonic() - began, f"turn {number}: {len(results)} calls")

        try:
            return await to_thread.run_sync(work, root, on_turn, abandon_on_cancel=True, limiter=self._slots)
        finally:
            left.set()
