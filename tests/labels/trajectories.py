"""Hand-made trajectories for tests."""

from __future__ import annotations

import json
from typing import Any

from codegrep.labels.trajectory import Call, Message, Trajectory

ROOT = "/workspace/owner__name__1.0"
SHOWN = "Here's the result of running `cat -n` on {path}:\n     1\timport x\n"


def view(path: str, identity: str = "c", **more: Any) -> Call:
    return Call(identity, "str_replace_editor", json.dumps({"command": "view", "path": path, **more}))


def shown(path: str, identity: str = "c") -> Message:
    return Message("tool", SHOWN.format(path=path), call_id=identity, name="str_replace_editor")


def trajectory(*messages: Message, identity: str = "t1", instance: str = "owner__name-1") -> Trajectory:
    opening = (
        Message("system", "You are an agent."),
        Message("user", "<issue_description>\nIt fails.\n</issue_description>"),
    )
    return Trajectory(identity, instance, "owner/name", (*opening, *messages), True)


def read_of(path: str, reasoning: str, identity: str = "t1", instance: str = "owner__name-1") -> Trajectory:
    """One view of one file, and what was written after it."""
    whole = f"{ROOT}/{path}"
    return trajectory(
        Message("assistant", "Let me look.", (view(whole),)),
        shown(whole),
        Message("assistant", reasoning),
        identity=identity,
        instance=instance,
    )
