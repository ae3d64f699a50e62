"""SWE-agent's .traj files: `trajectory` is a list of steps with thought, action and observation.

Actions are command lines. Views of the editor and `open` become views of the common form; all others stay shell
commands. The first user message comes from `history`.
"""

from __future__ import annotations

import json
import posixpath
import shlex

from codegrep.labels.adapters.parts import AdapterError, Row, id_of, outcome, shell_call, text_of
from codegrep.labels.shell_reads import MAX_COMMAND_CHARS
from codegrep.labels.trajectory import Call, Message, Trajectory

_EDITORS = ("str_replace_editor", "edit_anthropic")


def fits(row: Row) -> bool:
    """Whether the row has steps with an action."""
    steps = row.get("trajectory")
    return isinstance(steps, list) and bool(steps) and isinstance(steps[0], dict) and "action" in steps[0]


def convert(row: Row, name: str) -> Trajectory:
    """See Adapter."""
    steps = row.get("trajectory")
    if not isinstance(steps, list):
        raise AdapterError("trajectory is no list")
    instance = id_of(row, "instance_id") or name.removesuffix(".traj").split(".")[0]
    messages = [*_opening(row.get("history"))]
    folder = ""
    for number, step in enumerate(steps):
        if not isinstance(step, dict):
            continue
        folder = _folder(step) or folder
        call = _call(number, text_of(step.get("action")), folder)
        messages.append(Message("assistant", text_of(step.get("thought")) or text_of(step.get("response")), (call,)))
        messages.append(Message("tool", text_of(step.get("observation")), call_id=call.id, name=call.name))
    identity = id_of(row, "trajectory_id") or f"{instance}@{name}"
    return Trajectory(identity, instance, text_of(row.get("repo")), tuple(messages), outcome(row))


def _opening(history: object) -> list[Message]:
    found = []
    for item in history if isinstance(history, list) else []:
        role = text_of(item.get("role")) if isinstance(item, dict) else ""
        if role == "assistant":
            break
        if role in ("system", "user") and not item.get("is_demo"):
            found.append(Message(role, text_of(item.get("content"))))
    return found


def _folder(step: Row) -> str:
    """Return the folder that the step starts in, from its recorded state."""
    state = step.get("state")
    if isinstance(state, str):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError):
            return ""
    return text_of(state.get("working_dir")) if isinstance(state, dict) else ""


def _call(number: int, action: str, folder: str) -> Call:
    try:
        line = action.strip().split("\n", 1)[0]
        words = shlex.split(line) if len(line) <= MAX_COMMAND_CHARS else []
    except ValueError:
        words = []
    path = ""
    command = "view"
    if len(words) >= 3 and words[0] in _EDITORS and words[1] in ("view", "create"):
        command, path = words[1], words[2]
    elif len(words) >= 2 and words[0] in ("open", "create"):
        command, path = ("view" if words[0] == "open" else "create"), words[1]
    if not path:
        return shell_call(number, action)
    whole = path if path.startswith("/") else posixpath.join(folder, path)
    return Call(f"call_{number}", "str_replace_editor", json.dumps({"command": command, "path": whole}))
