"""The record of one rollout: everything needed to train on it, score it again, or read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from codegrep.protocol.calls import ToolStatus
from codegrep.protocol.exit_cause import LOST


@dataclass
class CallRecord:
    """One call of a turn and its result.

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
        weight: SFT weight of this turn's tokens; 1.0 where nothing was decided.
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
        source: "policy", "endpoint" (a model that gives text and no tokens) or "scripted" (the teacher).
        prompt_ids: (P,) tokens of system prompt and issue.
        completion_ids: (C,) everything after the prompt: sampled tokens and tool text, as the model saw them.
        loss_mask: (C,) 1 exactly on sampled tokens, 0 on tool text and scaffolding.
        logprobs: (C,) raw log-probability of sampled tokens under the policy that sampled them, 0.0 on the others;
            empty where the source gives none.
        answer: normalised repo-relative paths, best first, duplicates removed; empty without a readable answer.
        answered: an answer block was read.
        gold_files: as in the issue.
        exit_cause: value of protocol.exit_cause.ExitCause.
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
        return self.exit_cause in LOST

    @property
    def generated_tokens(self) -> int:
        """Number of sampled tokens."""
        return sum(self.loss_mask)

    @property
    def calls_per_turn(self) -> tuple[int, ...]:
        """Executed calls of each turn."""
        return tuple(sum(is_executed(call.name, call.status) for call in turn.calls) for turn in self.turns)


def is_executed(name: str, status: str) -> bool:
    """Return whether a call was executed: neither malformed (no name) nor refused, whatever its result."""
    return bool(name) and status != ToolStatus.REFUSED.value


def to_row(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as plain data for Parquet, Ray Data or JSON.

    File names that are not UTF-8 hold lone surrogates, which Arrow refuses: these become question marks.
    """
    row: dict[str, Any] = _storable(asdict(rollout))
    return row


def from_row(row: Mapping[str, Any]) -> Rollout:
    """Return the rollout of a row of `to_row`."""
    turns = [Turn(**{**turn, "calls": [CallRecord(**call) for call in turn["calls"]]}) for turn in row["turns"]]
    return Rollout(**{**row, "turns": turns})


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, list) and value and not isinstance(value[0], int | float):
        return [_storable(item) for item in value]
    return value
