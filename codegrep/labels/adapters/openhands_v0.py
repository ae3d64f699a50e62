"""OpenHands V0's output.jsonl (to 0.6x): `history` is a list of event dictionaries, or of [action, observation] pairs.

An action that came from a function call carries `tool_call_metadata` with the model's whole response; calls of one
response are one assistant message. Older logs carry none: then the call is rebuilt from the action.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from codegrep.labels.adapters.parts import AdapterError, Row, calls_of, id_of, outcome, text_of
from codegrep.labels.trajectory import Call, Message, Trajectory

#: Kinds of actions and observations that nobody says or does: the program's own state, and what it condenses.
_BOOKKEEPING = frozenset(
    "null start pause resume stop recall change_agent_state agent_state_changed condensation condensation_request"
    " condense loop_recovery loop_detection server_ready".split()
)


def fits(row: Row) -> bool:
    """Whether the row has a history of V0 events."""
    history = row.get("history")
    if not isinstance(history, list) or not history:
        return False
    first = history[0][0] if isinstance(history[0], list) and history[0] else history[0]
    return isinstance(first, dict) and ("action" in first or "observation" in first) and "kind" not in first


def convert(row: Row, name: str) -> Trajectory:
    """See Adapter."""
    if not isinstance(row.get("history"), list):
        raise AdapterError("history is no list")
    instance = id_of(row, "instance_id")
    about = row.get("instance")
    repo = text_of(about.get("repo")) if isinstance(about, dict) else ""
    messages = list(_messages(_events(row["history"])))
    if not any(message.role == "user" for message in messages) and (task := text_of(row.get("instruction"))):
        messages.insert(0, Message("user", task))
    identity = id_of(row, "trajectory_id") or f"{instance}@{name}"
    return Trajectory(identity, instance, repo or text_of(row.get("repo")), tuple(messages), outcome(row))


def _events(history: list[object]) -> Iterator[Row]:
    for item in history:
        for event in item if isinstance(item, list) else [item]:
            if isinstance(event, dict):
                yield event


def _messages(events: Iterator[Row]) -> Iterator[Message]:
    calls: dict[tuple[str, Message], set[str]] = {}  # of each response so far
    for event in events:
        about = event.get("tool_call_metadata")
        metadata = about if isinstance(about, dict) else {}
        call_id = text_of(metadata.get("tool_call_id"))
        if not metadata and text_of(event.get("observation", event.get("action"))) in _BOOKKEEPING:
            continue
        if "observation" in event:
            if metadata or event.get("source") == "agent" or event.get("cause") is not None:
                answers = call_id or f"event_{event.get('cause')}"
                yield Message("tool", _observed(event), call_id=answers, name=text_of(metadata.get("function_name")))
        elif event.get("source") == "user":
            yield Message("user", text_of(_args(event).get("content")) or text_of(event.get("message")))
        elif event.get("action") == "system":
            yield Message("system", text_of(_args(event).get("content")))
        elif "action" in event:
            message = _response(metadata.get("model_response"))
            if message is None:
                rebuilt = _rebuilt(event)
                if rebuilt.content or rebuilt.calls:
                    yield rebuilt
                continue
            # Providers may give one id to many responses, or none, so the content tells them apart.
            key = id_of(metadata["model_response"], "id"), message
            if call_id and key in calls and call_id not in calls[key]:
                calls[key].add(call_id)  # a further call of the same response
                continue
            calls[key] = {call_id}
            yield message


def _response(response: object) -> Message | None:
    try:
        message = response["choices"][0]["message"]  # type: ignore[index]
        return Message("assistant", text_of(message.get("content")), calls_of(message.get("tool_calls")))
    except (TypeError, KeyError, IndexError, AttributeError):
        return None


def _rebuilt(event: Row) -> Message:
    args = _args(event)
    kind = event.get("action")
    thought = text_of(args.get("thought"))
    call: Call | None = None
    identity = f"event_{event.get('id')}"
    if kind == "read":
        call = Call(identity, "str_replace_editor", json.dumps({"command": "view", "path": text_of(args.get("path"))}))
    elif kind in ("edit", "write"):
        command = text_of(args.get("command")) or ("create" if kind == "write" else "str_replace")
        call = Call(identity, "str_replace_editor", json.dumps({"command": command, "path": text_of(args.get("path"))}))
    elif kind == "run":
        call = Call(identity, "execute_bash", json.dumps({"command": text_of(args.get("command"))}))
    elif kind == "think":
        call, thought = Call(identity, "think", json.dumps({"thought": thought})), ""
    content = thought or text_of(args.get("content"))
    return Message("assistant", content, (call,) if call else ())


def _args(event: Row) -> Row:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _observed(event: Row) -> str:
    text = text_of(event.get("content")) or text_of(event.get("message"))
    failed = event.get("observation") == "error" and not text.startswith("ERROR")
    return f"ERROR:\n{text}" if failed else text
