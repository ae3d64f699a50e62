"""Use of the machine, recorded like every other metric."""

from __future__ import annotations

import time

from codegrep.tracking import names
from codegrep.tracking.environment import machine_id
from codegrep.tracking.system import SystemMetrics


class Kept:
    """What a Tracker is asked to log."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def metrics(self, values: dict[str, float], step: int) -> None:
        self.rows.append((step, values))


def _until(reached, seconds=30.0):
    limit = time.monotonic() + seconds
    while not reached() and time.monotonic() < limit:
        time.sleep(0.05)
    assert reached()


def test_what_is_recorded_has_allowed_names_of_the_catalogue():
    kept = Kept()
    with SystemMetrics(kept, 0.05, since=time.time() - 100):
        _until(lambda: len(kept.rows) >= 2)
    step, values = kept.rows[0]
    assert step >= 100
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= values.keys()
    assert all(names.is_allowed(name) and names.describe(name).name == "system/<measure>" for name in values)
    count = len(kept.rows)
    time.sleep(0.2)
    assert len(kept.rows) == count  # it has ended


def test_another_machine_stands_under_its_own_name():
    kept = Kept()
    with SystemMetrics(kept, 0.05, node="node_1a2b"):
        _until(lambda: kept.rows)
    assert all(name.startswith("system/node_1a2b/") for name in kept.rows[0][1])
    assert names.describe(next(iter(kept.rows[0][1]))).name == "system/<node>/<measure>"


def test_0_seconds_record_nothing():
    kept = Kept()
    with SystemMetrics(kept, 0):
        time.sleep(0.1)
    assert not kept.rows and len(machine_id()) == 8


def test_a_monitor_that_fails_ends_the_records_and_nothing_else(monkeypatch, caplog):
    class Broken:
        def collect_metrics(self):
            raise OSError("the disk is gone")

    monkeypatch.setattr("codegrep.tracking.system._monitors", lambda: [Broken()])
    kept = Kept()
    with SystemMetrics(kept, 0.01):
        _until(lambda: "the disk is gone" in caplog.text)
    assert not kept.rows
