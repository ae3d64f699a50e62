"""Calls and answers -> the text an assistant would write. The inverse of codegrep.protocol.parse."""

from __future__ import annotations

import json
from collections.abc import Sequence

from codegrep.protocol.calls import ToolCall


def calls_text(calls: Sequence[ToolCall]) -> str:
    """One `<tool_call>` block a call, in the Hermes/Qwen form."""
    return "\n".join(
        "<tool_call>\n"
        + json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
        + "\n</tool_call>"
        for call in calls
    )


def answer_text(files: Sequence[str]) -> str:
    """The `<answer>` block that names these files, best first."""
    return f"<answer>{json.dumps({'files': list(files)}, ensure_ascii=False)}</answer>"
