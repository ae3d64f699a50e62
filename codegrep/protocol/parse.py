r"""Assistant text -> tool calls and answer. Never raises: what cannot be read becomes a MalformedCall with its reason.

The form is Hermes/Qwen's: `<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>`. Decisions where that form
is silent:

- The JSON is read first and the closing marker looked for after it, so markers inside a JSON string are just text.
- Text inside `<think>...</think>` is skipped: a call that was only thought about does not count
  (`codegrep.text.without_thoughts`). Inside a whole block the marks are text.
- `arguments` may be a JSON string that holds an object (OpenAI's form). Anything else that is no object is malformed.
- Keys beside name and arguments make a call malformed, since dropping them would be silent.
- A call or answer that is not closed is malformed, even where its JSON is complete.
- Strings with lone surrogates are malformed: they are no text and cannot be handed to a program or written to a file.
- The last readable answer block counts (CodeGrep 3.2). Calls in the same text are returned too; the loop records them,
  unrun.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codegrep.protocol.answer import Answer, read_answer
from codegrep.protocol.calls import MalformedCall, ToolCall
from codegrep.text import without_thoughts

MAX_RAW = 500
MAX_DEPTH = 32
_OPENING = re.compile(r"<(tool_call|answer)>")
_SPACE = re.compile(r"\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class AssistantMessage:
    """What one assistant text asks for.

    Attributes:
        calls: in the order of the text.
        answer: the last readable answer block, or None.
        answer_error: why the last answer block could not be read, "" where there is none or a readable one.
        malformed_answers: answer blocks that could not be read, those beside a readable one included.
    """

    calls: tuple[ToolCall | MalformedCall, ...]
    answer: Answer | None = None
    answer_error: str = ""
    malformed_answers: int = 0

    @property
    def malformed(self) -> bool:
        """Something meant as a call or an answer could not be read."""
        return self.malformed_answers > 0 or any(isinstance(call, MalformedCall) for call in self.calls)


def parse_message(text: str, worktree: str = "") -> AssistantMessage:
    """Read one assistant message.

    Args:
        text: decoded sampled tokens, the end-of-turn token left out.
        worktree: absolute path that is dropped from answered files, see `paths.normalise_path`.
    """
    calls: list[ToolCall | MalformedCall] = []
    answer: Answer | None = None
    answer_error, malformed_answers = "", 0
    position = 0
    if "think>" in text.lower():
        text = without_thoughts(text, _whole_blocks(text))
    while (marker := _OPENING.search(text, position)) is not None:
        position = marker.end()
        if marker.group() == "<tool_call>":
            block = _read_block(text, position, "tool_call")
            calls.append(
                _read_call(block.value, block.raw) if block.error == "" else MalformedCall(block.raw, block.error)
            )
            position = block.end
        else:
            block = _read_block(text, position, "answer")
            read = read_answer(block.value, worktree) if block.error == "" else block.error
            if isinstance(read, Answer):
                answer = read
            else:
                answer_error = read
                malformed_answers += 1
            position = block.end
    return AssistantMessage(tuple(calls), answer, "" if answer is not None else answer_error, malformed_answers)


def _whole_blocks(text: str) -> list[tuple[int, int]]:
    """(start, end) of the blocks that are closed behind their JSON."""
    blocks: list[tuple[int, int]] = []
    position = 0
    while (marker := _OPENING.search(text, position)) is not None:
        block = _read_block(text, marker.end(), marker[1])
        whole = not block.error
        if whole:
            blocks.append((marker.start(), block.end))
        position = block.end if whole else marker.end()
    return blocks


@dataclass(frozen=True)
class _Block:
    """One marked block: its JSON value or an error, its raw text, and where the scan goes on."""

    value: Any
    error: str
    raw: str
    end: int


def _read_block(text: str, start: int, tag: str) -> _Block:
    closing = f"</{tag}>"
    value, after, error = _read_json(text, _behind_space(text, start))
    if error == "":
        end = _behind_space(text, after)
        if text.startswith(closing, end):
            return _Block(value, "", text[start:end].strip()[:MAX_RAW], end + len(closing))
    # No clean block: it ends at its closing marker, at the next opening one, or with the text.
    after = max(after, start)
    opening = _OPENING.search(text, after)
    end = opening.start() if opening is not None else len(text)
    closed = text.find(closing, after, end)
    if closed >= 0:
        end, raw = closed + len(closing), text[start:closed]
        error = error or "there is text after the JSON object"
    else:
        raw = text[start:end]
        error = f"the block is not closed with {closing}" + (f" ({error})" if error else "")
    return _Block(None, error, raw.strip()[:MAX_RAW], end)


def _behind_space(text: str, start: int) -> int:
    space = _SPACE.match(text, start)
    return space.end() if space else start


def _read_json(text: str, start: int) -> tuple[Any, int, str]:
    """(value, end, "") or (None, start, reason)."""
    if not text.startswith("{", start):
        return None, start, "a JSON object is expected"
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as failure:
        return None, start, f"invalid JSON: {failure.msg} at character {failure.pos - start + 1}"
    except ValueError as failure:  # an integer of thousands of digits, NaN
        return None, start, f"invalid JSON: {str(failure)[:100]}"
    except RecursionError:
        return None, start, "invalid JSON: nested too deeply"
    fault = _fault(value, MAX_DEPTH)
    return (None, start, f"invalid JSON: {fault}") if fault else (value, end, "")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _fault(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return "a string is not valid Unicode" if _SURROGATE.search(value) else ""
    if not isinstance(value, dict | list):
        return ""
    if depth == 0:
        return "nested too deeply"
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return next((fault for item in items if (fault := _fault(item, depth - 1))), "")


def _read_call(value: Any, raw: str) -> ToolCall | MalformedCall:
    name, arguments = value.get("name"), value.get("arguments")
    unknown = sorted(set(value) - {"name", "arguments"})
    if not isinstance(name, str) or not name.strip():
        return MalformedCall(raw, 'the call has no "name"')
    if unknown:
        listed = ", ".join(unknown)[:100]
        return MalformedCall(raw, f'unknown keys beside "name" and "arguments": {listed}')
    if isinstance(arguments, str):
        begin = len(arguments) - len(arguments.lstrip())
        inner = arguments
        arguments, end, error = _read_json(inner, begin)
        if error or inner[end:].strip():
            return MalformedCall(raw, '"arguments" is a string that holds no JSON object')
    if not isinstance(arguments, Mapping):
        return MalformedCall(raw, '"arguments" is not a JSON object')
    return ToolCall(name.strip(), arguments)
