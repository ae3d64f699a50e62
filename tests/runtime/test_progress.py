"""Lines, bars, and the remaining time."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from codegrep.runtime import progress
from codegrep.runtime.progress import Advance, Progress, duration


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in its one element."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_remaining_time_is_the_mean_pace_of_this_start(clock: list[float]) -> None:
    advance = Advance(10, done=4)
    assert advance.left is None
    clock[0] += 60
    advance()  # the first step of this start took a minute, so five others take five
    assert advance.left == 300
    clock[0] += 20
    assert advance.left == 280, "it counts down while a step is under way"
    clock[0] += 40
    advance.to(6)
    assert advance.left == 240
    advance.to(10)
    assert advance.left == 0


def test_a_log_has_totals_and_the_remaining_time(clock: list[float]) -> None:
    out = io.StringIO()
    with Progress(Console(file=out)).bar("GRPO", 40) as advance:
        clock[0] += 30
        advance.to(1, note="steps")
        clock[0] += 1
        advance.to(1)
        clock[0] += 89
        advance.to(40)
    assert out.getvalue().splitlines() == [
        "  GRPO: 1 of 40 (30 s, about 20 min left)",
        "  GRPO: 40 of 40 (120 s)",
    ]


def test_a_terminal_shows_both_too_where_a_step_takes_longer_than_half_a_minute(clock: list[float]) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with Progress(console).bar("warm start", 18) as advance:
        clock[0] += 40
        advance()
    assert "1/18" in out.getvalue() and "11 min left" in out.getvalue()  # 17 steps of 40 s


def test_durations() -> None:
    assert [duration(s) for s in (45, 130, 3700, 11_100)] == ["45 s", "2 min", "62 min", "3 h 05 min"]


def test_a_line_keeps_its_brackets_and_is_not_broken() -> None:
    out = io.StringIO()
    Progress(Console(file=out, width=20)).say("data.sources=[x] " * 5)
    assert out.getvalue() == "data.sources=[x] " * 5 + "\n"
