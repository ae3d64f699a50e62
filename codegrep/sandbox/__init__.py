"""Repositories, worktrees and three read-only tools on them, for untrusted callers. Works without Ray."""

from codegrep.issues.source import RepositoryLocation
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult, ToolStatus
from codegrep.sandbox.guard import Guard, PathRefused
from codegrep.sandbox.limits import paper_sandbox, paper_tools
from codegrep.sandbox.measure import CallMeasure, summary
from codegrep.sandbox.repositories import BareClone, Repositories
from codegrep.sandbox.sandbox import Sandbox
from codegrep.sandbox.toolbox import Toolbox
from codegrep.sandbox.tools import ArgumentError, Outcome, Tool
from codegrep.sandbox.worktrees import Lease, Worktrees

__all__ = [
    "ArgumentError",
    "BareClone",
    "CallMeasure",
    "Guard",
    "Lease",
    "MalformedCall",
    "Outcome",
    "PathRefused",
    "Repositories",
    "RepositoryLocation",
    "Sandbox",
    "Tool",
    "ToolCall",
    "ToolResult",
    "ToolStatus",
    "Toolbox",
    "Worktrees",
    "paper_sandbox",
    "paper_tools",
    "summary",
]
