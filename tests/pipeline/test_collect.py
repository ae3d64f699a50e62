"""What the tool calls of a step cost gets into the tracker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from codegrep.errors import InfrastructureError
from codegrep.pipeline.collect import ToolMeasures
from codegrep.sandbox.measure import CallCounters, CallMeasure
from codegrep.tracking.names import describe, is_allowed


class Counting:
    def __init__(self) -> None:
        self.counters, self.lost = CallCounters(), False

    def call(self, seconds: float) -> None:
        self.counters.add(CallMeasure("grep", "ok", seconds, 0.0, "run", False, 10))

    async def stats(self) -> dict[str, float]:
        if self.lost:
            raise InfrastructureError("the sandbox actor was lost")
        return self.counters.totals()


class Logged:
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float | None]]] = []

    def metrics(self, values: Mapping[str, float | None], step: int) -> None:
        self.rows.append((step, dict(values)))


def test_each_step_logs_its_own_calls() -> None:
    async def main() -> None:
        sandbox, logged = Counting(), Logged()
        measures = ToolMeasures(sandbox, logged)
        sandbox.call(9.0)  # of the stage before
        for step in (1, 2):
            await measures.begin()
            for _ in range(step):
                sandbox.call(0.01)
            await measures.log(step)
        assert [(step, row["sandbox/calls"]) for step, row in logged.rows] == [(1, 1.0), (2, 2.0)]
        assert all((row["sandbox/p99"] or 0) < 0.02 for _, row in logged.rows)
        assert all(is_allowed(name) and describe(name) for _, row in logged.rows for name in row)
        await measures.begin()
        await measures.log(3)  # no calls
        sandbox.call(0.01)
        sandbox.lost = True
        await measures.log(4)
        await measures.begin()
        sandbox.lost = False
        await measures.log(5)
        assert len(logged.rows) == 2

    asyncio.run(main())
