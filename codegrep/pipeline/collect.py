"""Rollouts for GRPO: sampled in the training worker, with the tools in the run's sandbox actors, and kept as
records.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegrep.config import EngineConfig, GRPOSettings
from codegrep.engines import Sampling
from codegrep.engines.transformers_engine import TransformersEngine
from codegrep.issues import Issue
from codegrep.pipeline.workers import AgentSettings
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop
from codegrep.rollout.record import Rollout
from codegrep.rollout.store import RolloutWriter
from codegrep.sandbox.actor import RemoteSandbox
from codegrep.tracking.run import TrackingHandle
from codegrep.training.callbacks import OnLog
from codegrep.training.loops import Policy


@dataclass(frozen=True)
class OpenPolicyCollector:
    """Makes a PolicyCollector in the training worker; picklable. records: folder for the rollouts of all steps."""

    settings: AgentSettings
    engine: EngineConfig
    grpo: GRPOSettings
    sandbox: RemoteSandbox
    records: str
    seed: int

    def __call__(self, policy: Policy) -> PolicyCollector:
        return PolicyCollector(policy, self)


class PolicyCollector:
    """Samples with the model that is being trained, in its own process (training.loops.Collector)."""

    def __init__(self, policy: Policy, options: OpenPolicyCollector) -> None:
        chat = ChatFormat(policy.tokenizer)
        settings, grpo = options.settings, options.grpo
        self._engine = TransformersEngine(
            policy.model,
            pad_id=int(policy.tokenizer.pad_token_id),
            stop_ids=chat.stop_ids,
            context=settings.context,
            max_batch=options.engine.max_batch,
            max_wait_ms=options.engine.max_wait_ms,
            seed=options.seed,
        )
        self._rollouts = RolloutLoop(
            self._engine, options.sandbox, chat, settings.agent, settings.tools, context=settings.context
        )
        self._sampling = Sampling(settings.agent.max_turn_tokens, grpo.temperature, grpo.top_p, grpo.top_k)
        self._seed = options.seed
        self._writer = RolloutWriter(Path(options.records))
        self._loop = asyncio.new_event_loop()

    def collect(self, issues: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        """See training.loops.Collector."""
        asked = [issue for issue in issues for _ in range(group_size)]
        seeds = [
            _draw_seed(self._seed, step, issue.instance_id, place) for issue in issues for place in range(group_size)
        ]
        self._engine.weights_version = step
        work = self._rollouts.run_many(asked, self._sampling, seeds=seeds, step=step, label="train")
        rollouts = self._loop.run_until_complete(work)
        for rollout in rollouts:
            self._writer.add(rollout)
        self._writer.flush()
        return rollouts

    def close(self) -> None:
        """See training.loops.Collector."""
        self._loop.run_until_complete(self._engine.close())
        self._writer.close()
        self._loop.close()


@dataclass(frozen=True)
class OpenTrackedLog:
    """Makes the log of a training worker; picklable. progress: file with the last step, for the driver's progress
    bar.
    """

    handle: TrackingHandle
    progress: str

    def __call__(self) -> OnLog:
        tracker = self.handle.open()
        progress = Path(self.progress)

        def log(step: int, numbers: dict[str, float]) -> None:
            tracker.metrics(numbers, step=step)
            progress.write_text(str(step), encoding="utf-8")

        return log


def _draw_seed(seed: int, step: int, instance_id: str, place: int) -> int:
    """A seed of its own for every rollout, the same when a step is sampled again after a restart."""
    digest = hashlib.sha256(f"{seed}/{step}/{instance_id}/{place}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
