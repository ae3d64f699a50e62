"""Rollouts for GRPO: sampled in the training worker, tools in the run's sandbox actors, kept as records."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegrep.config import GRPOSettings
from codegrep.engines import Sampling
from codegrep.errors import InfrastructureError
from codegrep.issues import Issue
from codegrep.pipeline.policies.engines import EngineHandle
from codegrep.pipeline.workers import AgentSettings
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop
from codegrep.rollout.record import Rollout
from codegrep.rollout.store import RolloutWriter
from codegrep.sandbox.actor import RemoteSandbox
from codegrep.sandbox.measure import summary
from codegrep.tracking.environment import machine_id
from codegrep.tracking.run import Tracker, TrackingHandle
from codegrep.tracking.system import SystemMetrics
from codegrep.training.callbacks import OnLog
from codegrep.training.guard_rails import Alarm, OnAlarm
from codegrep.training.loops import LivePolicy


@dataclass(frozen=True)
class OpenPolicyCollector:
    """Makes a PolicyCollector in the training worker; picklable.

    Attributes:
        settings: of the agent.
        engine: opened by the driver.
        grpo: how is sampled.
        sandbox: the run's actors.
        seed: of the run.
        records: folder for the rollouts of all steps.
        tracking: where rank 0 logs what the tool calls of a step cost (`sandbox/*`); None logs nothing.
    """

    settings: AgentSettings
    engine: EngineHandle
    grpo: GRPOSettings
    sandbox: RemoteSandbox
    records: str
    seed: int
    tracking: TrackingHandle | None = None

    def __call__(self, policy: LivePolicy) -> PolicyCollector:
        """Make it."""
        return PolicyCollector(policy, self)


class PolicyCollector:
    """Samples from the policy in training, through the run's engine (training.loops.Collector)."""

    def __init__(self, policy: LivePolicy, options: OpenPolicyCollector) -> None:
        settings, grpo = options.settings, options.grpo
        self._engine = options.engine.follow(policy)
        self._rollouts = RolloutLoop(
            self._engine,
            options.sandbox,
            ChatFormat(policy.tokenizer),
            settings.agent,
            settings.tools,
            context=settings.context,
        )
        self._sampling = Sampling(settings.agent.max_turn_tokens, grpo.temperature, grpo.top_p, grpo.top_k)
        self._seed = options.seed
        self._writer = RolloutWriter(Path(options.records))
        self._loop = asyncio.new_event_loop()
        logs = options.tracking is not None and policy.rank == 0
        self._tools = ToolMeasures(options.sandbox, options.tracking.open()) if logs and options.tracking else None
        self._metrics: dict[str, float] = {}

    def collect(self, issues: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        """Sample group_size rollouts of each issue from the policy as it is, and keep them."""
        asked = [issue for issue in issues for _ in range(group_size)]
        seeds = [
            _draw_seed(self._seed, step, issue.instance_id, place) for issue in issues for place in range(group_size)
        ]
        if self._tools is not None:
            self._loop.run_until_complete(self._tools.begin(step + 1))
        rollouts = self._loop.run_until_complete(self._collect(asked, seeds, step))
        for rollout in rollouts:
            self._writer.add(rollout)
        self._writer.flush()
        if self._tools is not None:
            self._loop.run_until_complete(self._tools.log(step + 1))
        return rollouts

    async def _collect(self, asked: Sequence[Issue], seeds: Sequence[int], step: int) -> list[Rollout]:
        faults = self._rollouts.token_faults.copy()
        self._metrics = await self._engine.follow(step)
        rollouts = await self._rollouts.run_many(asked, self._sampling, seeds=seeds, step=step, label="train")
        await self._engine.rest()
        for kind in ("stop_inside", "not_closed", "control_inside", "retokenised"):
            new = self._rollouts.token_faults[kind] - faults[kind]
            self._metrics[f"errors/tokens_{kind}"] = float(new)
        return rollouts

    def metrics(self) -> dict[str, float]:
        """Return the numbers of the last `collect`: the engine's weights, odd tokens."""
        return dict(self._metrics)

    def close(self) -> None:
        """Close engine and records."""
        self._loop.run_until_complete(self._engine.close())
        self._loop.close()


class ToolMeasures:
    """Logs what the tool calls of each step cost, those of all training workers together, as `sandbox/*`."""

    def __init__(self, sandbox: RemoteSandbox, tracker: Tracker) -> None:
        self._sandbox, self._tracker = sandbox, tracker
        self._before: dict[str, float] | None = None
        self._step = -1

    async def begin(self, step: int) -> None:
        """Begin a round of rollouts; several rounds of a step count together."""
        if step != self._step:
            self._step, self._before = step, await self._counters()

    async def log(self, step: int) -> None:
        """Log what the step has cost so far, and nothing where a sandbox actor is lost."""
        now = await self._counters()
        if now is not None and self._before is not None and (measured := summary(now, self._before)):
            self._tracker.metrics(measured, step=step)

    async def _counters(self) -> dict[str, float] | None:
        try:
            return await self._sandbox.stats()
        except InfrastructureError:  # measures are not worth a step
            return None


@dataclass(frozen=True)
class OpenTrackedLog:
    """Makes the log of a training worker; picklable. progress: file with the last step, for the driver's bar."""

    handle: TrackingHandle
    progress: str

    def __call__(self) -> OnLog:
        """Open the log."""
        tracker = self.handle.open()
        progress = Path(self.progress)
        used = time.process_time()
        if self.handle.machine not in ("", machine_id()):  # the driver records its own machine
            every = self.handle.system_metrics_seconds
            SystemMetrics(tracker, every, node=f"node_{machine_id()}", since=self.handle.started).__enter__()

        def log(step: int, numbers: dict[str, float]) -> None:
            nonlocal used
            now = time.process_time()
            tracker.metrics({**numbers, "seconds/cpu": now - used}, step=step)
            used = now
            progress.write_text(str(step), encoding="utf-8")

        return log


@dataclass(frozen=True)
class OpenTrackedAlarms:
    """Makes what guard rails call in a training worker; picklable. lines: file with a line an alarm, for the driver."""

    handle: TrackingHandle
    lines: str

    def __call__(self) -> OnAlarm:
        """Open the run's record."""
        tracker = self.handle.open()
        lines = Path(self.lines)

        def on_alarm(alarm: Alarm) -> None:
            with lines.open("a", encoding="utf-8") as file:
                file.write(f"{alarm}\n")
            if alarm.action != "warn":
                tracker.tags({f"guard.{alarm.rail}": f"{alarm.value:.4g} > {alarm.limit:.4g} at step {alarm.step}"})

        return on_alarm


def _draw_seed(seed: int, step: int, instance_id: str, place: int) -> int:
    """Give every rollout a seed of its own, the same when a step is sampled again after a restart."""
    digest = hashlib.sha256(f"{seed}/{step}/{instance_id}/{place}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
