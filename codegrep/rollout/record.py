"""The record of one rollout: everything that is needed to train on it, judge it again, or read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class ExitCause(StrEnum):
    """Why a rollout ended (SPEC 1.1, 4.4)."""

    ANSWER = "answer"  # an answer block in an assistant message
    NO_TOOL_CALL = "no_tool_call"  # a turn with neither a call nor an answer
    MAX_TURNS = "max_turns"  # the answer turn was reached and gave no answer
    MAX_TOKENS = "max_tokens"  # a turn or the completion budget ran out of tokens
    MALFORMED = "malformed"  # a call or answer that could not be read, where agent.stop_at_malformed
    CONTEXT_LIMIT = "context_limit"  # prompt + completion reached the model's context
    PROMPT_TOO_LONG = "prompt_too_long"  # the prompt alone fills the model's context, so nothing was sampled
    INFRASTRUCTURE = "infrastructure"  # never the model's fault, never scored as a bad rollout


@dataclass
class CallRecord:
    """One call of a turn as it was made and answered.

    Attributes:
        number, status, truncated, seconds: as in protocol.ToolResult.
        name: "" for a malformed call.
        arguments: JSON of the arguments, or the raw text of a malformed call.
        text: result of the tool, before the caps of the turn; Turn.observation is what the model read.
        paths: files that the observation shows for this call, in the order of its text.
        lines: numbers of the lines that the observation shows of the file of a read, ascending.
    """

    number: int
    name: str
    arguments: str
    status: str
    text: str
    paths: list[str] = field(default_factory=list)
    truncated: bool = False
    seconds: float = 0.0
    lines: list[int] = field(default_factory=list)


@dataclass
class Turn:
    """One assistant message and what the tools answered.

    Attributes:
        start, end: span of the sampled tokens in Rollout.completion_ids, end excluded.
        text: the sampled tokens decoded, for parsing and reading only.
        calls: in call order; empty for the answer turn.
        observation: the text given back to the model after this turn, "" for the last turn.
        weight: SFT weight of this turn's tokens (SPEC 3.3); 1.0 where nothing was decided.
        seconds_generation, seconds_tools: wall time.
        weights_version: version of the policy's weights for this turn.
    """

    start: int
    end: int
    text: str
    calls: list[CallRecord] = field(default_factory=list)
    observation: str = ""
    weight: float = 1.0
    seconds_generation: float = 0.0
    seconds_tools: float = 0.0
    weights_version: int = 0


@dataclass
class Rollout:
    """One attempt at one issue.

    Attributes:
        rollout_id: unique within a run.
        source: "policy", "endpoint" for a model that gives text and no tokens, or "scripted" for the teacher that is no
            model.
        prompt_ids: (P,) tokens of system prompt and issue.
        completion_ids: (C,) everything after the prompt: sampled tokens and tool text, as the model saw them.
        loss_mask: (C,) 1 exactly on sampled tokens, 0 on tool text and scaffolding.
        logprobs: (C,) raw log-probability of sampled tokens under the policy that sampled them, 0.0 on the others;
            empty where the source gives none.
        answer: normalised repo-relative paths, best first, duplicates removed; empty without a readable answer.
        answered: an answer block was read.
        gold_files: as in the issue.
        exit_cause: ExitCause value.
        error: one line for exit_cause "infrastructure", else "".
        step: optimiser step during which it was sampled, -1 outside training.
    """

    rollout_id: str
    instance_id: str
    repo: str
    base_commit: str
    source: str
    prompt_ids: list[int]
    completion_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    turns: list[Turn]
    answer: list[str]
    answered: bool
    gold_files: list[str]
    exit_cause: str
    error: str = ""
    step: int = -1
    seed: int = 0

    @property
    def lost(self) -> bool:
        """It ended before the policy could do well or badly: it has no reward, and nothing to train on."""
        return self.exit_cause in (ExitCause.INFRASTRUCTURE, ExitCause.PROMPT_TOO_LONG)

    @property
    def generated_tokens(self) -> int:
        """Number of sampled tokens."""
        return sum(self.loss_mask)

    @property
    def calls_per_turn(self) -> tuple[int, ...]:
        """Executed calls of each turn: ok, model_error or infrastructure; neither refused nor malformed ones."""
        return tuple(sum(1 for c in t.calls if c.name and c.status != "refused") for t in self.turns)
