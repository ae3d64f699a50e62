"""The multi-turn loop of CodeGrep (arXiv 2608.05886): policy, sandbox and protocol -> Rollout.

The same loop trains, evaluates, serves and records the teacher. Up to `exploration_turns` turns run their calls; the
answer turn after them runs none. Tokens are kept as they were sampled, never re-encoded; the loss mask is built while
they are appended, 1 for the policy's and 0 for all others.

Where the paper does not say how a rollout ends:
- Only a readable answer ends it as "answer". After an unreadable one the model is told so and goes on.
- Calls beside an answer, and calls of the answer turn, are recorded as refused.
- A turn that ran out of tokens ends it as "max_tokens" unless it holds a readable answer.
- A tool result that is the machine's fault ends it as "infrastructure".
- A prompt that fills the context ends it as "prompt_too_long" before anything is sampled.
- With agent.stop_at_malformed, an unreadable call or answer ends it as "malformed", whatever else the turn holds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from codegrep.config import AgentConfig, ToolsConfig
from codegrep.engines.engine import Engine, Generation, Sampling
from codegrep.errors import CodegrepError, InfrastructureError, TokenMismatchError
from codegrep.issues.issue import Issue
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult, ToolStatus
from codegrep.protocol.chat import ChatFormat
from codegrep.protocol.exit_cause import ExitCause
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
from codegrep.rollout.record import CallRecord, Rollout, Turn
from codegrep.sandbox.toolbox import Toolbox

log = logging.getLogger(__name__)

MakePolicy = Callable[[Engine, Sampling, int | None], Policy]


class TurnRunner(Protocol):
    """Runs the calls of one turn, concurrently, in the tree of one commit."""

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        """Return one result for each call, in order, numbered from 1; calls beyond the cap are refused.

        Raises:
            CodegrepError: there is no tree of this commit.
        """
        ...


class RolloutLoop:
    """Rolls out a policy on issues.

    Args:
        engine: may be None if only `run_policy` is used.
        context: longest prompt + completion of the model, tokens.
        make_policy: builds the policy of `run` from the engine.

    Attributes:
        token_faults: number of turns by kind of fault (ChatFormat.turn_fault).
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
        make_policy: MakePolicy = EnginePolicy,
    ) -> None:
        self._engine = engine
        self._sandbox = sandbox
        self._chat = chat
        self._agent = agent
        self._tools = tools
        self._context = context
        self._schemas = _schemas(tools)
        self._make_policy = make_policy
        self.token_faults: Counter[str] = Counter()

    def prompt_ids(self, issue: Issue) -> list[int]:
        """Return the prompt of an issue as token ids."""
        return self._chat.prompt_ids(*self.prompt(issue))

    def prompt(self, issue: Issue) -> tuple[str, str, list[dict[str, Any]]]:
        """Return the system message, the user message, and the tool schemas that the chat template renders."""
        style = self._style()
        return *self._prompts(issue, style), [s.function for s in self._schemas] if style == "native" else []

    def _style(self) -> PromptStyle:
        detailed = self._agent.prompt != "short"
        return "native" if detailed and self._chat.renders_tools else "detailed" if detailed else "short"

    def _prompts(self, issue: Issue, style: PromptStyle) -> tuple[str, str]:
        agent = self._agent
        system = system_prompt(agent, self._tools, self._schemas, style)
        user = user_prompt(issue.repo, issue.problem_statement, agent.max_issue_chars)
        return system, user

    async def run(self, issue: Issue, sampling: Sampling, *, seed: int, step: int = -1, label: str = "") -> Rollout:
        """Roll out the engine's model once; like `run_policy`."""
        assert self._engine is not None
        policy = self._make_policy(self._engine, sampling, seed)
        return await self.run_policy(issue, policy, seed=seed, step=step, label=label)

    async def run_policy(
        self, issue: Issue, policy: Policy, *, seed: int = 0, step: int = -1, label: str = ""
    ) -> Rollout:
        """Roll out any policy once.

        Args:
            issue: what is searched for.
            policy: of this rollout alone.
            seed: recorded.
            step: recorded.
            label: first part of rollout_id; by default the policy's source.

        Returns:
            The record. A lost engine, sandbox or repository, more than agent.max_seconds, and any other exception end
            it as "infrastructure" with the turns so far.

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
            # The text is for policies without tokens, which get no template that describes the tools itself.
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
    ) -> list[Rollout]:
        """Roll out many issues, `parallel_rollouts` at a time, one seed each; returns them in the order of `issues`."""
        slots = asyncio.Semaphore(self._agent.parallel_rollouts)

        async def one(issue: Issue, seed: int) -> Rollout:
            async with slots:
                return await self.run(issue, sampling, seed=seed, step=step, label=label)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(issue, seed)) for issue, seed in zip(issues, seeds, strict=True)]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _turn(self, run: _Run) -> ExitCause | None:
        """Run one turn; return the exit cause, or None if the rollout goes on."""
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
        self._check_tokens(run, generation)
        run.messages.append(("assistant", turn.text))
        message = parse_message(turn.text)
        if self._agent.stop_at_malformed and message.malformed and generation.finish_reason != "length":
            turn.calls = _refused(message, MALFORMED_REFUSAL)
            return ExitCause.MALFORMED
        if message.answer is not None:
            turn.calls = _refused(message, AFTER_ANSWER_REFUSAL)
            rollout.answer, rollout.answered = list(message.answer.files), True
            return ExitCause.ANSWER
        if generation.finish_reason == "length":
            turn.calls = _refused(message, OUT_OF_TOKENS_REFUSAL)
            return ExitCause.CONTEXT_LIMIT if len(generation.token_ids) >= room else ExitCause.MAX_TOKENS
        if answer_turn:
            turn.calls = _refused(message, ANSWER_REFUSAL)
            return ExitCause.MAX_TURNS
        if not message.calls:
            return ExitCause.NO_TOOL_CALL
        await self._explore(run, turn, message)
        return None

    def _check_tokens(self, run: _Run, generation: Generation) -> None:
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
        """Append sampled tokens with mask 1 and their log-probabilities, and the turn's record."""
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
        """Run the calls of a turn and append the observation with mask 0."""
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


def _schemas(tools: ToolsConfig) -> tuple[ToolSchema, ...]:
    if set(tools.names) <= set(SCHEMAS):
        return tuple(SCHEMAS[name] for name in tools.names)
    return tuple(ToolSchema.of(function) for function in Toolbox(tools).schemas())


@dataclass
class _Run:
    """A rollout in progress."""

    issue: Issue
    policy: Policy
    rollout: Rollout
    observations: list[Observation] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)


def _refused(message: AssistantMessage, why: str) -> list[CallRecord]:
    return [_call_record(ToolResult(n, call, ToolStatus.REFUSED, why)) for n, call in enumerate(message.calls, 1)]


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
