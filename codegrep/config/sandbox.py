"""conf/sandbox: clones and worktrees."""

from __future__ import annotations

from codegrep.config.setting import group, setting


@group
class SandboxConfig:
    """conf/sandbox."""

    clone_timeout: float = setting("seconds for a clone or a fetch", gt=0, paper="600")
    min_free_gib: float = setting("GiB of disk that stay free", ge=0)
    actors: int = setting("sandbox actors on every node", ge=1)
    max_worktrees: int = setting("trees kept; 0: no limit", ge=0)
    max_disk_gib: float = setting("GiB that the trees of one folder may take; 0: no limit", ge=0, default=0.0)
