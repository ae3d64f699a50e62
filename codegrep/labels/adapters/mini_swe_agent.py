"""mini-swe-agent: `messages` of a chat; each answer holds one shell command in a code block, or a function call.

The command's output comes back as the next user message; in the common form it is the call's tool message.
"""

from __future__ import annotations

import re

from codegrep.labels.adapters.parts import Row, id_of, messages_of, outcome, shell_call, text_of
from codegrep.labels.trajectory import Message, Trajectory

_OPENING = re.compile(r"```(?:mswea_bash_command|bash|sh)[^\S\n]*+\n")
_CLOSING = "\n```"


def fits(row: Row) -> bool:
    """Whether the row has messages and the marks of this agent."""
    messages = row.get("messages")
    return isinstance(messages, list) and bool(messages) and isinstance(messages[0], dict) and "role" in messages[0]


def convert(row: Row, name: str) -> Trajectory:
    """See Adapter."""
    info = row.get("info")
    about = info if isinstance(info, dict) else {}
    instance = id_of(row, "instance_id") or id_of(about, "instance_id") or name.split(".")[0]
    messages: list[Message] = []
    waiting = ""  # the call whose output the next user message is
    for number, message in enumerate(messages_of(row.get("messages"))):
        may_call = message.role == "assistant" and not message.calls
        blocks, rest = _blocks(message.content) if may_call else ([], "")
        if len(blocks) == 1:
            call = shell_call(number, blocks[0])
            messages.append(Message("assistant", rest.strip(), (call,)))
            waiting = call.id
        elif waiting and message.role == "user":
            messages.append(Message("tool", message.content, call_id=waiting, name="execute_bash"))
            waiting = ""
        else:
            messages.append(message)
            waiting = ""
    identity = id_of(row, "trajectory_id") or f"{instance}@{name}"
    return Trajectory(identity, instance, text_of(row.get("repo")), tuple(messages), outcome(row))


def _blocks(text: str) -> tuple[list[str], str]:
    """Return the contents of the code blocks, and the text without them."""
    blocks, rest, at = [], [], 0
    while (opening := _OPENING.search(text, at)) and (end := text.find(_CLOSING, opening.end())) >= 0:
        blocks.append(text[opening.end() : end].lstrip("\n"))
        rest.append(text[at : opening.start()])
        at = end + len(_CLOSING)
    return blocks, "".join([*rest, text[at:]])
