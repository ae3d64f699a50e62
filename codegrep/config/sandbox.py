"""conf/sandbox: worktrees and the index over them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SandboxConfig:
    """conf/sandbox.

    Attributes:
        clone_timeout: seconds for a clone or a fetch (600).
        min_free_gib: disk that stays free.
        actors: sandbox actors on every node.
        max_worktrees: trees kept; 0 means no limit.
        max_disk_gib: disk that the trees of one folder may take; 0 means no limit.
        index_mib: memory of the index of file contents in one sandbox; 0 searches whole trees.
    """

    clone_timeout: float
    min_free_gib: float
    actors: int
    max_worktrees: int
    max_disk_gib: float = 0.0
    index_mib: float = 512.0
