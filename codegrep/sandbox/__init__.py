"""Repositories, worktrees and three read-only tools on them, for untrusted callers. Works without Ray."""

from codegrep.sandbox.guard import Guard, PathRefused
from codegrep.sandbox.repositories import BareClone, Location, Repositories
from codegrep.sandbox.sandbox import Sandbox
from codegrep.sandbox.toolbox import Toolbox
from codegrep.sandbox.tools import ArgumentError, Outcome, Tool
from codegrep.sandbox.worktrees import Lease, Worktrees

__all__ = [
    "ArgumentError",
    "BareClone",
    "Guard",
    "Lease",
    "Location",
    "Outcome",
    "PathRefused",
    "Repositories",
    "Sandbox",
    "Tool",
    "Toolbox",
    "Worktrees",
]
