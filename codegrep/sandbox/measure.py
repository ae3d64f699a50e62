"""What calls cost, as counters that add up over actors and can be subtracted over time.

Latencies are kept as histograms with bounds that grow by a fifth, so a percentile read from them is right within 20 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

_SMALLEST = 1e-5  # seconds; everything below is the first bucket
_GROWTH = 1.2
_BUCKETS = 100  # the last one begins at about 11 minutes


@dataclass(frozen=True)
class CallMeasure:
    """One call that was answered.

    Attributes:
        tool: its name; "" for a call that cannot be read and for tools that do not exist.
        status: a ToolStatus value.
        seconds: from the question to the answer, waiting included.
        waited: seconds in the queue for one of the places.
        source: "run", "kept" (from the cache) or "shared" (another call was asking the same).
        timed_out: it met its deadline.
        bytes: of the result's text, UTF-8.
    """

    tool: str
    status: str
    seconds: float
    waited: float
    source: str
    timed_out: bool
    bytes: int


class CallCounters:
    """Adds measures up."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._sums: dict[str, float] = {"seconds": 0.0, "seconds_waited": 0.0, "bytes": 0.0}

    def add(self, call: CallMeasure) -> None:
        """Count one call."""
        self._counts[f"calls/{call.status}"] += 1
        self._counts["calls/timed_out"] += call.timed_out
        self._counts[f"latency/{_bucket(call.seconds)}"] += 1
        self._sums["seconds"] += call.seconds
        self._sums["seconds_waited"] += call.waited
        self._sums["bytes"] += call.bytes

    def malformed(self) -> None:
        """Count a call that cannot be read."""
        self._counts["calls/malformed"] += 1

    def refused(self, status: str) -> None:
        """Count a call that was not executed."""
        self._counts[f"calls/{status}"] += 1

    def totals(self) -> dict[str, float]:
        """All counters since the start."""
        return {name: float(count) for name, count in sorted(self._counts.items())} | self._sums


def percentile(counters: Mapping[str, float], share: float) -> float:
    """Return the latency in seconds that `share` of the calls stayed below; nan when there was no call."""
    counts = [counters.get(f"latency/{i}", 0.0) for i in range(_BUCKETS)]
    wanted, seen = share * sum(counts), 0.0
    for i, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return float(_SMALLEST * _GROWTH ** (i + 0.5))
    return math.nan


def summary(after: Mapping[str, float], before: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the metrics of the time between two `Sandbox.stats`, by their names in codegrep/tracking/names.py.

    Empty when no call was executed meanwhile; a share is left out where there was nothing to take it of.
    """
    done = {name: value - (before or {}).get(name, 0.0) for name, value in after.items()}
    calls = sum(value for name, value in done.items() if name.startswith("latency/"))
    if calls <= 0:  # also after an actor was restarted and counts anew
        return {}
    asked = sum(done.get(f"cache/{kind}", 0.0) for kind in ("hits", "shared", "misses"))
    made = {
        "sandbox/calls": calls,
        "sandbox/p50": percentile(done, 0.50),
        "sandbox/p95": percentile(done, 0.95),
        "sandbox/p99": percentile(done, 0.99),
        "sandbox/queue": done.get("seconds_waited", 0.0) / calls,
        "sandbox/timeouts": done.get("calls/timed_out", 0.0),
        "sandbox/faults": done.get("calls/infrastructure", 0.0),
        "sandbox/bytes": done.get("bytes", 0.0),
        "sandbox/worktrees_made": done.get("worktrees/adds", 0.0),
    }
    if asked:
        made["sandbox/cache_hits"] = 1 - done.get("cache/misses", 0.0) / asked
    return made


def _bucket(seconds: float) -> int:
    if seconds <= _SMALLEST:
        return 0
    return min(_BUCKETS - 1, int(math.log(seconds / _SMALLEST, _GROWTH)))
