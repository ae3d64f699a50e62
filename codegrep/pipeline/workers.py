"""What Ray Data's actors do with a batch of issues: the scripted teacher, an agent with a model, BM25 on a worktree."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.config import AgentConfig, TeacherConfig, ToolsConfig
from codegrep.engines import Sampling
from codegrep.errors import CodegrepError, InfrastructureError
from codegrep.issues import Issue
from codegrep.issues.source import RepositoryLocation
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop, TurnRunner
from codegrep.rollout.policy import ScriptedPolicy
from codegrep.rollout.record import to_row
from codegrep.rollout.teacher import Teacher, first_row, gold_met

if TYPE_CHECKING:
    from codegrep.pipeline.policies.engines import EngineHandle


@dataclass(frozen=True)
class AgentSettings:
    """What decides how an agent runs, beside its model. context: tokens."""

    agent: AgentConfig
    tools: ToolsConfig
    context: int


class TeacherWorker:
    """Runs the scripted teacher. A row an issue: the rollout, the first file shown, and the gold files that it met."""

    def __init__(self, model: str, settings: AgentSettings, teacher: TeacherConfig, sandbox: TurnRunner) -> None:
        from codegrep.engines.models import load_tokenizer

        self._chat = ChatFormat(load_tokenizer(Path(model)))
        self._rollouts = RolloutLoop(
            None, sandbox, self._chat, settings.agent, settings.tools, context=settings.context
        )
        self._settings, self._teacher = settings, teacher
        self._loop = asyncio.new_event_loop()  # engines and remote sandboxes are bound to the loop they first ran in

    def answer(self, issues: Sequence[Issue]) -> list[dict[str, Any]]:
        """Return rows in the order of the issues."""

        async def answer_all() -> list[dict[str, Any]]:
            slots = asyncio.Semaphore(self._settings.agent.parallel_rollouts)

            async def one(issue: Issue) -> dict[str, Any]:
                async with slots:
                    return await self._one(issue)

            return await asyncio.gather(*(one(issue) for issue in issues))

        return self._loop.run_until_complete(answer_all())

    async def _one(self, issue: Issue) -> dict[str, Any]:
        tools = self._settings.tools
        teacher = Teacher(self._teacher, tools.max_calls, tools.names, self._settings.agent.prompt)
        rollout = await self._rollouts.run_policy(issue, ScriptedPolicy(self._chat, teacher.write))
        return {
            "rollout": to_row(rollout),
            "first_row": first_row(teacher.observations),
            "gold_met": gold_met(issue, teacher.observations)[: self._teacher.max_answer_files],
        }


class AgentWorker:
    """Runs a model as the agent. A row an issue: the rollout."""

    def __init__(
        self,
        engine: EngineHandle,
        settings: AgentSettings,
        sandbox: TurnRunner,
        temperature: float,
        seed: int,
        label: str,
    ) -> None:
        served = engine.serve()
        self._rollouts = RolloutLoop(
            served.engine,
            sandbox,
            served.chat,
            settings.agent,
            settings.tools,
            context=settings.context,
            make_policy=served.make_policy,
        )
        self._sampling = Sampling(max_tokens=settings.agent.max_turn_tokens, temperature=temperature)
        self._seed, self._label = seed, label
        self._loop = asyncio.new_event_loop()  # engines and remote sandboxes are bound to the loop they first ran in

    def answer(self, issues: Sequence[Issue]) -> list[dict[str, Any]]:
        """Return rows in the order of the issues."""
        seeds = [self._seed] * len(issues)
        work = self._rollouts.run_many(issues, self._sampling, seeds=seeds, label=self._label)
        return [{"rollout": to_row(rollout)} for rollout in self._loop.run_until_complete(work)]


class BM25Worker:
    """BM25 over the tree at the base commit, with and without test files, top 2. A row an issue and variant."""

    def __init__(
        self,
        root: str,
        locations: Mapping[str, RepositoryLocation],
        min_free_gib: float,
        max_worktrees: int,
        clone_timeout: float,
    ) -> None:
        from codegrep.retrievers.bm25 import BM25, TreeIndexer
        from codegrep.sandbox.repositories import Repositories
        from codegrep.sandbox.worktrees import Worktrees

        repositories = Repositories(Path(root) / "bare", clone_timeout, locations)
        self._worktrees = Worktrees(Path(root) / "trees", repositories, min_free_gib, max_worktrees)
        indexer = TreeIndexer()
        self._retrievers = [BM25(top_k=2, include_tests=tests, indexer=indexer) for tests in (True, False)]

    def answer(self, issues: Sequence[Issue]) -> list[dict[str, Any]]:
        """Return rows; an issue whose tree cannot be had has an error in place of files."""
        rows = []
        for issue in issues:
            try:
                with self._worktrees.lease(issue.repo, issue.base_commit) as lease:
                    for retriever in self._retrievers:
                        found = retriever.retrieve(issue, lease.path)
                        rows.append(
                            {
                                "instance_id": issue.instance_id,
                                "retriever": retriever.name,
                                "files": list(found.files),
                                "seconds": found.seconds,
                                **found.detail,
                            }
                        )
            except (CodegrepError, InfrastructureError) as error:
                rows.extend(
                    {"instance_id": issue.instance_id, "retriever": r.name, "files": [], "error": str(error)}
                    for r in self._retrievers
                )
        return rows
