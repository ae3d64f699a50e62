"""The multi-turn loop: policy, sandbox and protocol -> Rollout. The same loop trains, evaluates, serves and records
the teacher.

States: an exploration turn (up to `exploration_turns` of them) runs the calls of the turn and goes on; the answer
turn runs none. A rollout ends with an ExitCause (SPEC 1.1). Tokens are carried as they were sampled: the loss mask is
built while the tokens are put together, 1 for what the policy gave, 0 for everything else, and nothing is ever
searched for or re-encoded.

Readings chosen where SPEC 1.1 is silent: only a readable answer ends a rollout as "answer"; an unreadable one is no
answer, and the model is told so if the rollout goes on. Calls beside an answer and calls of the answer turn are
recorded as refused, not run. A turn that ran out of tokens ends the rollout as "max_tokens" unless it holds a
readable answer. A tool result that is the machine's fault ends it as "infrastructure". A prompt that leaves no room
in the context ends it as "prompt_too_long" before anything is sampled. With agent.stop_at_malformed a turn with a call
or answer that cannot be read ends it as "malformed", whatever else the turn holds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from codegrep.config import AgentConfig, ToolsConfig
from codegrep.engines.engine import Engine, Generation, Sampling
from codegrep.errors import CodegrepError, InfrastructureError, TokenMismatchError
from codegrep.issues.issue import Issue
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult, ToolStatus
from codegrep.protocol.chat import ChatFormat
from codegrep.protocol.observation import Observation, render
from codegrep.protocol.parse import AssistantMessage, parse_message
from codegrep.protocol.prompt import (
    AFTER_ANSWER_REFUSAL,
    ANSWER_NOW,
    ANSWER_REFUSAL,
    MALFORMED_REFUSAL,
    OUT_OF_TOKENS_REFUSAL,
    PromptStyle,
    system_prompt,
    user_prompt,
)
from codegrep.protocol.schemas import SCHEMAS, ToolSchema
from codegrep.protocol.shown import ShownFile
from codegrep.rollout.policy import EnginePolicy, Policy, TurnState
from codegrep.rollout.record import CallRecord, ExitCause, Rollout, Turn
from codegrep.sandbox.toolbox import Toolbox

log = logging.getLogger(__name__)

MakePolicy = Callable[[Engine, Sampling, int | None], Policy]


class TurnRunner(Protocol):
    """Runs the calls of one turn, concurrently, in the tree of one commit."""

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        """One result a call, in order, numbered from 1: malformed calls are answered, calls beyond the cap refused.

        Raises:
            CodegrepError: the tree cannot be had.
        """
        ...


class RolloutLoop:
    """Rolls out one policy on issues.

    Args:
        engine: may be None where every rollout brings its own policy (`run_policy`).
        context: longest prompt + completion of the model, tokens.
        schemas: how the tools are described; None takes those of tools.names (of the tool's own class where it is no
            tool of the protocol).
        make_policy: who speaks for the engine in `run`.

    Attributes:
        token_faults: turns by what is odd about their tokens (ChatFormat.turn_fault).
    """

    def __init__(
        self,
        engine: Engine | None,
        sandbox: TurnRunner,
        chat: ChatFormat,
        agent: AgentConfig,
        tools: ToolsConfig,
        *,
        context: int,
        schemas: Sequence[ToolSchema] | None = None,
        make_policy: MakePolicy = EnginePolicy,
    ) -> None:
        self._engine = engine
        self._sandbox = sandbox
        self._chat = chat
        self._agent = agent
        self._tools = tools
        self._context = context
        self._schemas = _described(tools) if schemas is None else tuple(schemas)
        self._make_policy = make_policy
        self.token_faults: Counter[str] = Counter()

    def prompt_ids(self, issue: Issue) -> list[int]:
        """The prompt of an issue, as token ids."""
        native = self._style() == "native"
        system, user = self._prompts(issue, self._style())
        return self._chat.prompt_ids(system, user, [s.function for s in self._schemas] if native else ())

    def _style(self) -> PromptStyle:
        detailed = self._agent.prompt != "short"
        return "native" if detailed and self._chat.renders_tools else "detailed" if detailed else "short"

    def _prompts(self, issue: Issue, style: PromptStyle) -> tuple[str, str]:
        agent = self._agent
        system = system_prompt(agent, self._tools, self._schemas, style)
        user = user_prompt(issue.repo, issue.problem_statement, agent.max_issue_chars, agent.exploration_turns == 0)
        return system, user

    async def run(self, issue: Issue, sampling: Sampling, *, seed: int, step: int = -1, label: str = "") -> Rollout:
        """One rollout of the engine's model. Never raises but for cancellation: see `run_policy`."""
        if self._engine is None:
            raise InfrastructureError("this rollout loop was made without an engine")
        policy = self._make_policy(self._engine, sampling, seed)
        return await self.run_policy(issue, policy, seed=seed, step=step, label=label)

    async def run_policy(
        self, issue: Issue, policy: Policy, *, seed: int = 0, step: int = -1, label: str = ""
    ) -> Rollout:
        """One rollout of any policy.

        Args:
            seed, step: recorded. label: first part of rollout_id, by default the policy's source.

        Returns:
            The record. A lost engine, sandbox or repository, more than agent.max_seconds, and a fault of this code end
            it as "infrastructure" with the turns that were made so far. Only cancellation is raised, and

        Raises:
            TokenMismatchError: with agent.strict_tokens, at the first turn whose tokens do not fit the chat format.
        """
        run = _Run(
            issue,
            policy,
            Rollout(
                rollout_id=f"{label or policy.source}-{step}-{issue.instance_id}-{seed}",
                instance_id=issue.instance_id,
                repo=issue.repo,
                base_commit=issue.base_commit,
                source=policy.source,
                prompt_ids=[],
                completion_ids=[],
                loss_mask=[],
                logprobs=[],
                turns=[],
                answer=[],
                answered=False,
                gold_files=list(issue.gold_files),
                exit_cause=ExitCause.INFRASTRUCTURE.value,
                step=step,
                seed=seed,
            ),
        )
        try:
            run.rollout.prompt_ids = self.prompt_ids(issue)
            # Text is for policies that have no tokens. A template that describes tools itself needs tokens.
            style: PromptStyle = "short" if self._agent.prompt == "short" else "detailed"
            run.messages += zip(("system", "user"), self._prompts(issue, style), strict=True)
            async with asyncio.timeout(self._agent.max_seconds or None):
                while (cause := await self._turn(run)) is None:
                    pass
            run.rollout.exit_cause = cause.value
        except TimeoutError:
            run.rollout.error = f"given up after {self._agent.max_seconds:g} s (agent.max_seconds)"
        except TokenMismatchError:
            raise
        except CodegrepError as failure:
            run.rollout.error = str(failure)
        except Exception as failure:
            log.exception("rollout %s failed", run.rollout.rollout_id)
            run.rollout.error = " ".join(f"{type(failure).__name__}: {failure}".split())[:500]
        if len(run.rollout.logprobs) != len(run.rollout.loss_mask):
            run.rollout.logprobs = []  # a source without log-probabilities
        return run.rollout

    async def run_many(
        self,
        issues: Sequence[Issue],
        sampling: Sampling,
        *,
        seeds: Sequence[int],
        step: int = -1,
        label: str = "",
        on_done: Callable[[Rollout], None] | None = None,
    ) -> list[Rollout]:
        """Rollouts of many issues, `parallel_rollouts` at a time; repeat an issue for a group, with seeds of its own.

        Args:
            seeds: one a rollout.
            on_done: called with each rollout as it ends; what it raises stops the whole call.

        Returns:
            In the order of `issues`.
        """
        slots = asyncio.Semaphore(self._agent.parallel_rollouts)

        async def one(issue: Issue, seed: int) -> Rollout:
            async with slots:
                rollout = await self.run(issue, sampling, seed=seed, step=step, label=label)
            if on_done is not None:
                on_done(rollout)
            return rollout

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(issue, seed)) for issue, seed in zip(issues, seeds, strict=True)]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _turn(self, run: _Run) -> ExitCause | None:
        """One turn; its exit cause, or None where the rollout goes on."""
        rollout, turn_index = run.rollout, len(run.rollout.turns)
        context_ids = (*rollout.prompt_ids, *rollout.completion_ids)
        room = self._context - len(context_ids)
        budget = self._agent.max_completion_tokens - rollout.generated_tokens
        if room <= 0 and not turn_index:
            return ExitCause.PROMPT_TOO_LONG
        if room <= 0 or budget <= 0:
            return ExitCause.CONTEXT_LIMIT if room <= 0 else ExitCause.MAX_TOKENS
        answer_turn = turn_index >= self._agent.exploration_turns
        max_tokens = min(self._agent.max_turn_tokens, budget, room)
        state = TurnState(
            run.issue, turn_index, answer_turn, tuple(run.observations), context_ids, max_tokens, tuple(run.messages)
        )
        started = time.perf_counter()
        generation = await run.policy.next(state)
        turn = self._record(run, generation, time.perf_counter() - started)
        if generation.finish_reason == "abort":
            raise InfrastructureError("the engine gave up a generation")
        self._look_at_tokens(run, generation)
        run.messages.append(("assistant", turn.text))
        message = parse_message(turn.text)
        if self._agent.stop_at_malformed and message.malformed and generation.finish_reason != "length":
            turn.calls = [_refused(n, call, MALFORMED_REFUSAL) for n, call in enumerate(message.calls, 1)]
            return ExitCause.MALFORMED
        if message.answer is not None:
            turn.calls = [_refused(n, call, AFTER_ANSWER_REFUSAL) for n, call in enumerate(message.calls, 1)]
            rollout.answer, rollout.answered = list(message.answer.files), True
            return ExitCause.ANSWER
        if generation.finish_reason == "length":
            turn.calls = [_refused(n, call, OUT_OF_TOKENS_REFUSAL) for n, call in enumerate(message.calls, 1)]
            return ExitCause.CONTEXT_LIMIT if len(generation.token_ids) >= room else ExitCause.MAX_TOKENS
        if answer_turn:
            turn.calls = [_refused(n, call, ANSWER_REFUSAL) for n, call in enumerate(message.calls, 1)]
            return ExitCause.MAX_TURNS
        if not message.calls:
            return ExitCause.NO_TOOL_CALL
        await self._explore(run, turn, message)
        return None

    def _look_at_tokens(self, run: _Run, generation: Generation) -> None:
        fault = self._chat.turn_fault(generation.token_ids, generation.finish_reason == "stop")
        if not fault:
            return
        self.token_faults[fault.kind] += 1
        if fault.grave and self._agent.strict_tokens:
            raise TokenMismatchError(
                f"turn {len(run.rollout.turns)} of {run.rollout.rollout_id}: {fault.what}",
                "Look at the engine's stop tokens and the model's chat template, or set agent.strict_tokens=false",
            )

    def _record(self, run: _Run, generation: Generation, seconds: float) -> Turn:
        """Append sampled tokens, with mask 1 and their log-probabilities, and open the turn's record."""
        rollout, ids = run.rollout, list(generation.token_ids)
        start = len(rollout.completion_ids)
        rollout.completion_ids += ids
        rollout.loss_mask += [1] * len(ids)
        if len(generation.logprobs) == len(ids):
            rollout.logprobs += generation.logprobs
        turn = Turn(
            start=start,
            end=start + len(ids),
            text=self._chat.decode(ids),
            seconds_generation=seconds,
            weights_version=generation.weights_version,
        )
        rollout.turns.append(turn)
        return turn

    async def _explore(self, run: _Run, turn: Turn, message: AssistantMessage) -> None:
        """Run the calls of a turn and append what the model reads next, with mask 0."""
        rollout = run.rollout
        started = time.perf_counter()
        results = await self._sandbox.run_turn(run.issue.repo, run.issue.base_commit, message.calls)
        turn.seconds_tools = time.perf_counter() - started
        turn.calls = [_call_record(result) for result in results]
        if len(results) != len(message.calls):
            raise InfrastructureError(f"the sandbox answered {len(results)} of {len(message.calls)} calls")
        lost = next((result for result in results if result.status is ToolStatus.INFRASTRUCTURE), None)
        if lost is not None:
            raise InfrastructureError(f"call {lost.number} of turn {len(rollout.turns)}: {lost.text[:300]}")
        notes = [f"Your answer could not be read: {message.answer_error}."] if message.answer_error else []
        if len(rollout.turns) == self._agent.exploration_turns:
            notes.append(ANSWER_NOW)
        observation = render(results, self._tools, key=run.issue.instance_id, note=" ".join(notes))
        turn.calls = [_call_record(*answered) for answered in zip(results, observation.calls, strict=True)]
        turn.observation = observation.text
        run.observations.append(observation)
        run.messages.append(("user", turn.observation))
        ended_by_stop = rollout.completion_ids[-1] == self._chat.end_of_turn
        ids = self._chat.observation_ids(observation.segments, ended_by_stop)
        rollout.completion_ids += ids
        rollout.loss_mask += [0] * len(ids)
        if rollout.logprobs:
            rollout.logprobs += [0.0] * len(ids)


def _described(tools: ToolsConfig) -> tuple[ToolSchema, ...]:
    if set(tools.names) <= set(SCHEMAS):
        return tuple(SCHEMAS[name] for name in tools.names)
    return tuple(ToolSchema.of(function) for function in Toolbox(tools).schemas())


@dataclass
class _Run:
    """A rollout on its way."""

    issue: Issue
    policy: Policy
    rollout: Rollout
    observations: list[Observation] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)


def _refused(number: int, call: ToolCall | MalformedCall, why: str) -> CallRecord:
    return _call_record(ToolResult(number, call, ToolStatus.REFUSED, why))


def _call_record(result: ToolResult, shown: Sequence[ShownFile] = ()) -> CallRecord:
    call = result.call
    is_read = isinstance(call, ToolCall) and call.name == "read"
    return CallRecord(
        number=result.number,
        name=call.name if isinstance(call, ToolCall) else "",
        arguments=json.dumps(dict(call.arguments), ensure_ascii=False) if isinstance(call, ToolCall) else call.raw,
        status=result.status.value,
        text=result.text,
        paths=[file.path for file in shown],
        truncated=result.truncated,
        seconds=result.seconds,
        lines=[line for file in shown for line in file.lines] if is_read else [],
    )
