"""Scripted policies as rollout records; their texts go through the parser, as a model's do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from codegrep.issues.issue import Entity, LineRange
from codegrep.protocol.calls import ToolCall, ToolStatus
from codegrep.protocol.exit_cause import ExitCause
from codegrep.protocol.parse import parse_message
from codegrep.protocol.write import calls_text
from codegrep.rollout.record import CallRecord, Rollout, Turn

MAX_CALLS = 8
CHARS_A_TOKEN = 4  # roughly; there is no tokenizer here


@dataclass(frozen=True)
class World:
    """An issue as a scripted policy knows it.

    Attributes:
        name: for reports.
        files: every file of the repository.
        gold, gold_ranges, gold_entities: as in an Issue.
        mentioned: paths in the issue's text.
        most_edited: the file that most fixes of this repository touch.
    """

    name: str
    files: tuple[str, ...]
    gold: tuple[str, ...]
    gold_ranges: tuple[LineRange, ...] = ()
    gold_entities: tuple[Entity, ...] | None = None
    mentioned: tuple[str, ...] = ()
    most_edited: str = ""

    @property
    def wrong(self) -> str:
        """A file that is neither gold nor mentioned nor the most edited one."""
        taken = {*self.gold, *self.mentioned, self.most_edited}
        return next(path for path in self.files if path not in taken)


def answer(files: Sequence[str], ranges: Sequence[LineRange] = (), entities: Sequence[Entity] = ()) -> str:
    """Return an answer block, as a model would write it."""
    content: dict[str, object] = {"files": list(files)}
    if ranges:
        content["line_ranges"] = [[span.path, span.start, span.end] for span in ranges]
    if entities:
        content["entities"] = [entity.label for entity in entities]
    return f"<answer>{json.dumps(content)}</answer>"


def greps(words: Sequence[str]) -> str:
    """Return one turn of searches."""
    return calls_text([ToolCall("grep", {"pattern": word}) for word in words])


def record(world: World, texts: Sequence[str], max_turns: int = 4) -> Rollout:
    """Return the rollout of a policy that writes `texts`, one a turn.

    The first eight calls of a turn succeed, further ones are refused. The rollout ends with an answer, a turn without a
    call, or the last turn.
    """
    turns: list[Turn] = []
    tokens = 0
    answered: list[str] = []
    cause = ExitCause.MAX_TURNS
    for text in texts[:max_turns]:
        message = parse_message(text)
        length = max(1, len(text) // CHARS_A_TOKEN)
        calls = [
            CallRecord(
                number,
                call.name if isinstance(call, ToolCall) else "",
                json.dumps(dict(call.arguments)) if isinstance(call, ToolCall) else call.raw,
                (ToolStatus.OK if number <= MAX_CALLS and message.answer is None else ToolStatus.REFUSED).value,
                "",
            )
            for number, call in enumerate(message.calls, 1)
        ]
        turns.append(Turn(tokens, tokens + length, text, calls))
        tokens += length
        if message.answer is not None:
            answered, cause = list(message.answer.files), ExitCause.ANSWER
            break
        if not message.calls:
            cause = ExitCause.NO_TOOL_CALL
            break
    return Rollout(
        rollout_id=world.name,
        instance_id=world.name,
        repo="lab/lab",
        base_commit="",
        source="scripted",
        prompt_ids=[0],
        completion_ids=[0] * tokens,
        loss_mask=[1] * tokens,
        logprobs=[],
        turns=turns,
        answer=answered,
        answered=cause == ExitCause.ANSWER,
        gold_files=list(world.gold),
        exit_cause=cause.value,
    )
