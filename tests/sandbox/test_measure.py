"""Counters that add up and subtract, and the metrics made of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.config import SandboxConfig
from codegrep.protocol.calls import MalformedCall, ToolCall
from codegrep.sandbox import Sandbox
from codegrep.sandbox.measure import CallCounters, CallMeasure, percentile, summary
from codegrep.tracking.names import describe
from tests.sandbox.trees import Made, tool_limits


def measure(seconds: float, source: str = "run", timed_out: bool = False) -> CallMeasure:
    return CallMeasure("grep", "ok", seconds, seconds / 10, source, timed_out, 100)


@given(seconds=st.lists(st.floats(1e-4, 100), min_size=1, max_size=60), share=st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_percentiles_are_right_within_a_fifth(seconds: list[float], share: float) -> None:
    counters = CallCounters()
    for one in seconds:
        counters.add(measure(one))
    ordered = sorted(seconds)
    exact = next(value for n, value in enumerate(ordered, 1) if n >= share * len(ordered))
    assert percentile(counters.totals(), share) == pytest.approx(exact, rel=0.2)


def test_the_time_between_two_snapshots_over_two_actors() -> None:
    actors = [CallCounters(), CallCounters()]
    actors[0].add(measure(5.0))
    before = Counter(actors[0].totals())
    for actor in actors:
        for _ in range(49):
            actor.add(measure(0.010))
        actor.add(measure(2.0, timed_out=True))
    after = Counter(actors[0].totals())
    after.update(actors[1].totals())
    after.update({"cache/hits": 30, "cache/shared": 10, "cache/misses": 60})
    made = summary(after, before)
    assert made["sandbox/calls"] == 100 and made["sandbox/timeouts"] == 2 and made["sandbox/bytes"] == 10_000
    assert made["sandbox/p50"] == pytest.approx(0.010, rel=0.2) and made["sandbox/p99"] == pytest.approx(2.0, rel=0.2)
    assert made["sandbox/queue"] == pytest.approx((98 * 0.001 + 2 * 0.2) / 100)
    assert made["sandbox/cache_hits"] == pytest.approx(0.4)
    assert summary(after, after) == {} == summary(before, after)
    for name in made:
        entry = describe(name)
        assert entry is not None and entry.name == name, name


def test_a_sandbox_measures_every_call_and_tells(tmp_path: Path, many: Made) -> None:
    told: list[CallMeasure] = []
    settings = SandboxConfig(clone_timeout=60, min_free_gib=0, actors=1, max_worktrees=0)
    box = Sandbox.under(tmp_path, tool_limits(), settings, {"o/n": many}, told.append)
    grep, read = ToolCall("grep", {"pattern": "f3"}), ToolCall("read", {"path": "which.py"})
    bad = ToolCall("grep", {"pattern": "("})
    for _ in range(2):
        asyncio.run(box.run_turn("o/n", many.commits[0], [grep, grep, read, bad, MalformedCall("", "x")]))
    assert [(call.tool, call.source) for call in sorted(told[:4], key=lambda c: (c.tool, c.source))] == [
        ("grep", "run"), ("grep", "run"), ("grep", "shared"), ("read", "run"),
    ]  # fmt: skip
    assert all(call.source == "kept" and call.seconds < 0.1 for call in told[4:])
    assert all(call.bytes > 0 and call.seconds >= call.waited >= 0 for call in told)
    made = summary(box.stats())
    assert made["sandbox/calls"] == 8 and made["sandbox/cache_hits"] == pytest.approx(5 / 8)
    assert made["sandbox/worktrees_made"] == 1


def test_what_another_turn_finds_while_this_one_begins_is_kept_not_shared(
    tmp_path: Path, many: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[CallMeasure] = []
    settings = SandboxConfig(clone_timeout=60, min_free_gib=0, actors=1, max_worktrees=0)
    box = Sandbox.under(tmp_path, tool_limits(), settings, {"o/n": many}, told.append)
    turn = ("o/n", many.commits[0], [ToolCall("glob", {"pattern": "*"})])
    asyncio.run(box.run_turn(*turn))
    look_up, asked = box._cache.look_up, iter([True])
    monkeypatch.setattr(box._cache, "look_up", lambda key: None if next(asked, False) else look_up(key))
    asyncio.run(box.run_turn(*turn))
    assert [one.source for one in told] == ["run", "kept"] and box.stats()["cache/hits"] == 1
    box.close()
