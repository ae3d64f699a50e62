"""Calls and answers -> the text an assistant would write. The inverse of codegrep.protocol.parse."""

from __future__ import annotations

import json
from collections.abc import Sequence

from codegrep.issues.issue import Entity, LineRange
from codegrep.protocol.calls import ToolCall


def calls_text(calls: Sequence[ToolCall]) -> str:
    """One `<tool_call>` block a call, in the Hermes/Qwen form."""
    return "\n".join(
        "<tool_call>\n"
        + json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
        + "\n</tool_call>"
        for call in calls
    )


def answer_text(
    files: Sequence[str], ranges: Sequence[LineRange] | None = None, entities: Sequence[Entity] | None = None
) -> str:
    """Return the `<answer>` block that names these files, best first.

    Args:
        ranges, entities: None where the form of the answer does not ask for them.
    """
    answer: dict[str, object] = {"files": list(files)}
    if ranges is not None:
        answer["line_ranges"] = [[span.path, span.start, span.end] for span in ranges]
    if entities is not None:
        answer["entities"] = [f"{entity.path}:{entity.name}" for entity in entities]
    return f"<answer>{json.dumps(answer, ensure_ascii=False)}</answer>"
