"""What the adapters share: text from the many forms that content has, ids, outcomes, calls."""

from __future__ import annotations

import json
from typing import Any

from codegrep.labels.trajectory import ASSISTANT, Call, Message

Row = dict[str, Any]


class AdapterError(ValueError):
    """A row that cannot be brought to the common form; the message says why."""


def text_of(value: object) -> str:
    """Text of a content field: a string, a list of parts with `text`, or nothing."""
    if isinstance(value, str):
        # JSON may hold half a surrogate pair, which no file can.
        return value if value.isascii() else value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, list):
        parts = [
            text_of(part.get("text", part.get("content"))) if isinstance(part, dict) else text_of(part)
            for part in value
        ]
        return "\n".join(part for part in parts if part)
    if isinstance(value, dict):
        return text_of(value.get("text", value.get("content")))
    return ""


def calls_of(value: object) -> tuple[Call, ...]:
    """Read function calls in OpenAI's form: {id, function: {name, arguments}} or flat, arguments as text or object."""
    if not isinstance(value, list | tuple):
        return ()
    found = []
    for item in value:
        if not isinstance(item, dict):
            continue
        function = item.get("function")
        about = function if isinstance(function, dict) else item
        found.append(Call(text_of(item.get("id")), text_of(about.get("name")), arguments_of(about.get("arguments"))))
    return tuple(found)


def arguments_of(value: object) -> str:
    """Arguments as JSON text. A struct that a column store padded with nulls is kept as it is: it is counted later."""
    if isinstance(value, str):
        return text_of(value)
    if value is None:
        return ""
    try:
        return json.dumps(value, default=str)
    except (ValueError, TypeError, RecursionError):
        return ""


def shell_call(number: int, command: str) -> Call:
    """Return a shell command as a call."""
    return Call(f"call_{number}", "execute_bash", json.dumps({"command": command}))


def outcome(row: Row) -> bool | None:
    """Whether the attempt passed: a field `resolved` of the row, of its `report`, or of its `info`."""
    for holder in (row, row.get("report"), row.get("info"), row.get("test_result")):
        value = holder.get("resolved") if isinstance(holder, dict) else None
        if isinstance(value, bool | int | float) and value == value:
            return bool(value)
    return None


def messages_of(items: object) -> tuple[Message, ...]:
    """Chat messages; what is no message is left out.

    Raises:
        AdapterError: there is no list, or nothing that the agent or a tool says stands where it should.
    """
    if not isinstance(items, list | tuple):
        raise AdapterError(f"messages must be a list, got {type(items).__name__}")
    found = []
    for item in items:
        role = text_of(item.get("role")) if isinstance(item, dict) else ""
        if role:
            found.append(
                Message(
                    "assistant" if role in ASSISTANT else role,
                    text_of(item.get("content")),
                    calls_of(item.get("tool_calls")) if role in ASSISTANT else (),
                    text_of(item.get("tool_call_id")),
                    text_of(item.get("name")),
                )
            )
    acted = [message for message in found if message.role in ("assistant", "tool")]
    if acted and not any(message.content or message.calls for message in acted):
        keys = {str(key) for item in items if isinstance(item, dict) for key in item}
        raise AdapterError(f"no message has content or tool_calls; their keys: {', '.join(sorted(keys)[:12])}")
    return tuple(found)


def id_of(row: Row, *names: str) -> str:
    """Return the first of some fields that holds text or a number."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return text_of(value).strip()
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return ""
