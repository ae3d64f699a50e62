"""What the agent says and hears: tool calls, their results, the answer, and how they become text and tokens."""

from codegrep.protocol.calls import FileMatches, MalformedCall, ToolCall, ToolResult, ToolStatus

__all__ = ["FileMatches", "MalformedCall", "ToolCall", "ToolResult", "ToolStatus"]
