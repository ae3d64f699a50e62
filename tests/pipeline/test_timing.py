"""Throughput and latency are measured apart."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from codegrep.issues import Issue
from codegrep.pipeline import timing
from codegrep.pipeline.stages import evaluate
from codegrep.runtime.map_batches import _Actor
from codegrep.runtime.progress import Progress


def issue(number: int, repo: str = "o/r") -> Issue:
    return Issue(f"i{number}", repo, "c" * 40, "text", gold_files=("a.py",))


def row_of(one: Issue, seconds: float, error: str = "") -> dict[str, Any]:
    turn = {"seconds_generation": seconds, "seconds_tools": 0.0}
    return {"rollout": {"instance_id": one.instance_id, "error": error, "turns": [turn]}}


class Together:
    """Answers the issues of a block at the same time, 0.2 s each."""

    def answer(self, issues: Sequence[Issue]) -> list[dict[str, Any]]:
        async def one(some: Issue) -> dict[str, Any]:
            started = time.perf_counter()
            await asyncio.sleep(0.2)
            return row_of(some, time.perf_counter() - started)

        async def everyone() -> list[dict[str, Any]]:
            return list(await asyncio.gather(*(one(some) for some in issues)))

        return asyncio.run(everyone())


def test_a_block_of_ten_takes_a_tenth_of_its_time_an_issue() -> None:
    """The turns' own times add up to ten times the wall time: they are no cost of an issue."""
    texts = [json.dumps(asdict(issue(n))) for n in range(10)]
    rows = [json.loads(text) for text in _Actor(Together, {})({"issue": texts})["row"]]
    own = sum(turn["seconds_generation"] for row in rows for turn in row["rollout"]["turns"])
    assert own == pytest.approx(2.0, abs=0.5)
    assert sum(row["seconds_per_issue"] for row in rows) == pytest.approx(0.2, abs=0.1)


def test_the_sample_takes_repositories_in_turn_and_is_the_same_for_everybody() -> None:
    issues = [issue(n, f"o/r{n % 3}") for n in range(12)]
    chosen = timing.sample(issues, 4)
    assert [len({one.repo for one in chosen[:n]}) for n in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert timing.sample(issues[::-1], 4)[:1] and {one.instance_id for one in timing.sample(issues[::-1], 12)} == {
        one.instance_id for one in issues
    }
    assert timing.sample(list(reversed(issues)), 4) == chosen
    assert timing.sample(issues, 0) == [] and len(timing.sample(issues, 50)) == 12


def test_an_issue_outside_the_sample_pays_for_the_start() -> None:
    issues = [issue(n) for n in range(3)]
    assert timing.with_warm_up(issues[1:], issues) == [issues[0], *issues[1:]]
    assert timing.with_warm_up(issues, issues) == [issues[0], *issues]


def test_times_are_kept_by_kind_and_a_torn_line_costs_one_of_them(tmp_path: Path) -> None:
    block = [{**row_of(issue(n), 9.0, error="lost" * (n == 2)), "seconds_per_issue": 0.5} for n in range(3)]
    timing.note(tmp_path, block, alone=False, of={"i0", "i1", "i2"})
    timing.note(tmp_path, [row_of(issue(1), 3.0)], alone=True, of={"i1"})
    with (tmp_path / "seconds.jsonl").open("a") as out:
        out.write('{"instance_id": "i')
    times = timing.read(tmp_path)
    assert times.of("i0") == {"seconds_per_issue": 0.5, "latency_seconds": None}
    assert times.of("i1") == {"seconds_per_issue": 0.5, "latency_seconds": 3.0}
    assert times.of("i2") == {"seconds_per_issue": None, "latency_seconds": None}
    assert timing.read(tmp_path / "nowhere").of("i0")["latency_seconds"] is None


def test_the_sample_is_asked_one_at_a_time_and_only_once(tmp_path: Path) -> None:
    asked: list[tuple[list[str], int, int]] = []

    def ask(some: Sequence[Issue], batch: int, actors: int) -> Iterator[list[dict[str, Any]]]:
        asked.append(([one.instance_id for one in some], batch, actors))
        for number, one in enumerate(some):
            yield [{**row_of(one, 100.0 if number == 0 else 1.5), "seconds_per_issue": 0.0}]

    config: Any = SimpleNamespace(evaluate=SimpleNamespace(latency_issues=2))
    issues, nothing = [issue(n, f"o/r{n}") for n in range(4)], cast(Any, None)
    progress = Progress(Console(file=io.StringIO()))
    measure = evaluate._Measurements(
        config, nothing, nothing, nothing, nothing, progress, sandboxes=nothing, issues=issues
    )
    for _ in range(2):  # the second time everything is known
        measure._time_single_issues(tmp_path, "agent", ask)
    ((ids, batch, actors),) = asked
    assert len(ids) == 3 and (batch, actors) == (1, 1)
    measured = {i for i in ids if timing.read(tmp_path).of(i)["latency_seconds"] == 1.5}
    assert measured == set(ids[1:])  # the warm-up's 100 s count nowhere
