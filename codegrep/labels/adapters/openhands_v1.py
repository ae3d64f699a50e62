"""OpenHands V1 (software-agent-sdk): `history` is a list of SDK events with a `kind`.

Actions of one model response share `llm_response_id` and are one assistant message; its text is their `thought`.
"""

from __future__ import annotations

from codegrep.labels.adapters.parts import AdapterError, Row, arguments_of, id_of, outcome, text_of
from codegrep.labels.trajectory import Call, Message, Trajectory


def fits(row: Row) -> bool:
    """Whether the row has a history of SDK events."""
    history = row.get("history")
    return isinstance(history, list) and bool(history) and isinstance(history[0], dict) and "kind" in history[0]


def convert(row: Row, name: str) -> Trajectory:
    """See Adapter."""
    history = row.get("history")
    if not isinstance(history, list):
        raise AdapterError("history is no list")
    instance = id_of(row, "instance_id")
    messages: list[Message] = []
    response = ""
    for event in history:
        if not isinstance(event, dict):
            continue
        kind = text_of(event.get("kind"))
        if kind == "ActionEvent":
            mine = text_of(event.get("llm_response_id"))
            call, thought = _call(event), text_of(event.get("thought"))
            if mine and mine == response and messages and messages[-1].role == "assistant":
                last = messages[-1]
                text = "\n".join(part for part in (last.content, thought) if part)
                messages[-1] = Message("assistant", text, (*last.calls, call))
            else:
                messages.append(Message("assistant", thought, (call,)))
            response = mine
        elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
            messages.append(
                Message(
                    "tool",
                    _observed(event),
                    call_id=text_of(event.get("tool_call_id")),
                    name=text_of(event.get("tool_name")),
                )
            )
        elif kind == "MessageEvent":
            said = event.get("llm_message")
            content = text_of(said.get("content")) if isinstance(said, dict) else ""
            messages.append(Message("assistant" if event.get("source") == "agent" else "user", content))
        elif kind == "SystemPromptEvent":
            messages.append(Message("system", text_of(event.get("system_prompt"))))
    about = row.get("instance")
    repo = text_of(about.get("repo")) if isinstance(about, dict) else text_of(row.get("repo"))
    attempt = id_of(row, "attempt")
    identity = id_of(row, "trajectory_id") or f"{instance}@{name}" + (f"-attempt{attempt}" if attempt else "")
    return Trajectory(identity, instance, repo, tuple(messages), outcome(row))


def _call(event: Row) -> Call:
    made = event.get("tool_call")
    call = made if isinstance(made, dict) else {}
    inner = call.get("function")
    function = inner if isinstance(inner, dict) else call
    action = event.get("action")
    arguments = arguments_of(function.get("arguments"))
    if not arguments and isinstance(action, dict):
        arguments = arguments_of({k: v for k, v in action.items() if k != "kind"})
    name = text_of(function.get("name")) or text_of(event.get("tool_name"))
    return Call(text_of(event.get("tool_call_id")) or text_of(call.get("id")), name, arguments)


def _observed(event: Row) -> str:
    found = event.get("observation")
    observation = found if isinstance(found, dict) else {}
    text = text_of(observation.get("content")) or text_of(observation.get("output"))
    error = text_of(event.get("error")) or text_of(observation.get("error"))
    if error or observation.get("is_error") is True:
        return f"ERROR:\n{error or text}"
    return text
