"""What the tool calls of a step cost gets into the tracker, and what the guard rails say onto the run."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from pathlib import Path

from transformers import TrainerControl, TrainerState, TrainingArguments

from codegrep.config import GuardRailsConfig, RailConfig
from codegrep.errors import InfrastructureError
from codegrep.pipeline.collect import OpenTrackedAlarms, ToolMeasures
from codegrep.sandbox.measure import CallCounters, CallMeasure
from codegrep.tracking import store
from codegrep.tracking.names import describe, is_allowed
from codegrep.tracking.run import Tracker
from codegrep.training.callbacks import TimeLimit
from codegrep.training.guard_rails import GuardRails


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
            await measures.begin(step)
            for _ in range(step):
                sandbox.call(0.01)
            await measures.log(step)
        assert [(step, row["sandbox/calls"]) for step, row in logged.rows] == [(1, 1.0), (2, 2.0)]
        assert all((row["sandbox/p99"] or 0) < 0.02 for _, row in logged.rows)
        assert all(is_allowed(name) and describe(name) for _, row in logged.rows for name in row)
        await measures.begin(3)
        await measures.log(3)  # no calls
        sandbox.call(0.01)
        sandbox.lost = True
        await measures.log(4)
        await measures.begin(5)
        sandbox.lost = False
        await measures.log(5)
        assert len(logged.rows) == 2

    asyncio.run(main())


def test_the_rounds_of_a_step_count_together() -> None:
    async def main() -> None:
        sandbox, logged = Counting(), Logged()
        measures = ToolMeasures(sandbox, logged)
        for step, calls in ((1, 3), (1, 2), (2, 4)):
            await measures.begin(step)
            for _ in range(calls):
                sandbox.call(0.01)
            await measures.log(step)
        # What is logged later for a step takes the place of what was.
        assert [(step, row["sandbox/calls"]) for step, row in logged.rows] == [(1, 3.0), (1, 5.0), (2, 4.0)]

    asyncio.run(main())


def test_a_passed_guard_rail_is_a_tag_of_the_mlflow_run(tmp_path: Path) -> None:
    uri = store.sqlite_uri(tmp_path)
    tracker = Tracker.start(uri, "codegrep", "v3", {}, tmp_path / "run_id")
    said = tmp_path / "guard_rails.txt"
    # As it travels to the training worker.
    open_alarms: OpenTrackedAlarms = pickle.loads(pickle.dumps(OpenTrackedAlarms(tracker.handle, str(said))))
    rails = {
        "kl": RailConfig("policy/kl", above=0.3, action="tag"),
        "entropy": RailConfig("policy/entropy", times_start=2.0, action="stop"),
        "length": RailConfig("completions/generated", above=400.0, action="warn"),
        "dead_groups": RailConfig("group/dead_rate", above=0.5, action="tag"),
    }
    limit = TimeLimit(0)
    guard = GuardRails(GuardRailsConfig(1, rails), dict, limit, open_alarms())
    for step, (kl, entropy, length) in enumerate([(0.1, 1.0, 300.0), (0.31, 1.5, 500.0), (0.35, 2.5, 500.0)], 1):
        numbers = {
            "policy/kl": kl,
            "policy/entropy": entropy,
            "completions/generated": length,
            "group/dead_rate": 0.5,  # not above its limit
        }
        state = TrainerState(global_step=step, is_world_process_zero=True)
        guard.on_log(TrainingArguments(), state, TrainerControl(), {"loss": 0.0, **numbers})

    tags = store.connect(uri).get_run(tracker.run_id).data.tags
    assert {name: value for name, value in tags.items() if name.startswith("guard.")} == {
        "guard.kl": "0.31 > 0.3 at step 2",
        "guard.entropy": "2.5 > 2 at step 3",
    }
    assert said.read_text(encoding="utf-8").splitlines() == [
        "guard rail kl: policy/kl is 0.31, above 0.3, at step 2",
        "guard rail length: completions/generated is 500, above 400, at step 2",
        "guard rail entropy: policy/entropy is 2.5, above 2, at step 3",
    ]
    assert guard.metrics() == {"guard/kl": 1.0, "guard/entropy": 1.0, "guard/length": 1.0, "guard/dead_groups": 0.0}
