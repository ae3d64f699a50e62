"""Policies: what writes the assistant turns of a rollout, a model or a script."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from codegrep.engines.engine import Engine, Generation, GenerationRequest, Sampling
from codegrep.issues.issue import Issue
from codegrep.protocol.chat import ChatFormat
from codegrep.protocol.observation import Observation

if TYPE_CHECKING:
    from codegrep.engines.openai_engine import OpenAIEngine


@dataclass(frozen=True)
class TurnState:
    """State of a rollout when a turn begins.

    Attributes:
        issue: a policy under evaluation must not look at its gold files.
        turn: 0-based.
        answer_turn: calls are no longer run; an answer is due.
        observations: what the model was shown after each earlier turn.
        context_ids: prompt and everything after it, as token ids.
        max_tokens: most tokens of this turn, the stop token included; > 0.
        messages: the same conversation as text, (role, content) each, for policies that have no tokens.
    """

    issue: Issue
    turn: int
    answer_turn: bool
    observations: tuple[Observation, ...]
    context_ids: tuple[int, ...]
    max_tokens: int
    messages: tuple[tuple[str, str], ...] = ()


class Policy(Protocol):
    """Writes the turns of one rollout."""

    @property
    def source(self) -> str:
        """Rollout.source: "policy", "endpoint" or "scripted"."""
        ...

    async def next(self, state: TurnState) -> Generation:
        """Return the tokens of this turn, at most state.max_tokens.

        Raises:
            InfrastructureError: the engine is lost.
        """
        ...


class EnginePolicy:
    """A model behind an engine.

    Args:
        sampling: of every turn; max_tokens is a further bound.
        seed: of the rollout; each turn gets its own from it. None leaves the draw to the engine.
    """

    source = "policy"

    def __init__(self, engine: Engine, sampling: Sampling, seed: int | None) -> None:
        self._engine = engine
        self._sampling = sampling
        self._seed = seed

    async def next(self, state: TurnState) -> Generation:
        """Sample one turn."""
        sampling = replace(self._sampling, max_tokens=min(self._sampling.max_tokens, state.max_tokens))
        seed = None if self._seed is None else turn_seed(self._seed, state.turn)
        prefix_group = zlib.crc32(state.issue.instance_id.encode("utf-8", "replace"))
        return await self._engine.generate(GenerationRequest(state.context_ids, sampling, seed, prefix_group))


class ChatPolicy:
    """A model behind an endpoint that takes and gives text.

    Its turns are encoded to be counted and recorded. These are not the tokens that it sampled, so its rollouts have no
    log-probabilities. Arguments as for EnginePolicy.
    """

    source = "endpoint"

    def __init__(self, endpoint: OpenAIEngine, chat: ChatFormat, sampling: Sampling, seed: int | None) -> None:
        self._endpoint = endpoint
        self._chat = chat
        self._sampling = sampling
        self._seed = seed

    async def next(self, state: TurnState) -> Generation:
        """Ask for one turn."""
        sampling = replace(self._sampling, max_tokens=min(self._sampling.max_tokens, state.max_tokens))
        messages = [{"role": role, "content": content} for role, content in state.messages]
        seed = None if self._seed is None else turn_seed(self._seed, state.turn)
        reply = await self._endpoint.complete(messages, sampling, seed=seed)
        ids = self._chat.turn_ids(reply.text)
        if reply.finish_reason == "length":
            ids = ids[:-1]
        # The endpoint kept to the limit in tokens of its own tokenizer.
        ids = ids[: state.max_tokens]
        return Generation(tuple(ids), (), "stop" if ids and ids[-1] in self._chat.stop_ids else "length")


class ScriptedPolicy:
    """Turns whose text a function writes, such as the scripted teacher's.

    Args:
        write: text of the next turn from the state; may look at anything in it.
    """

    source = "scripted"

    def __init__(self, chat: ChatFormat, write: Callable[[TurnState], Awaitable[str]]) -> None:
        self._chat = chat
        self._write = write

    async def next(self, state: TurnState) -> Generation:
        """Write one turn and encode it."""
        ids = self._chat.turn_ids(await self._write(state))
        if len(ids) > state.max_tokens:
            return Generation(tuple(ids[: state.max_tokens]), (), "length")
        return Generation(tuple(ids), (), "stop")


def turn_seed(seed: int, turn: int) -> int:
    """Return the seed of one turn, spread over 63 bits so that neighbouring rollouts do not share draws."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{turn}".encode()).digest()[:8], "big") >> 1
