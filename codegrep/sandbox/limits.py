"""The paper's limits, for those who use the sandbox without the configuration of an experiment."""

from __future__ import annotations

import dataclasses
from typing import Any

from codegrep.config import SandboxConfig, SearchToolConfig, ToolsConfig


def paper_tools(**changed: Any) -> ToolsConfig:
    """Return the limits of conf/tools/grep_glob_read.yaml (CodeGrep 3.3), others by keyword.

    Raises:
        TypeError: a keyword that is no field of ToolsConfig.
    """
    return dataclasses.replace(
        ToolsConfig(
            names=["grep", "glob", "read"],
            max_calls=8,
            max_matches=50,
            max_paths=100,
            max_lines=200,
            max_chars=4096,
            max_observation_chars=0,
            max_line_chars=400,
            grep_timeout=10.0,
            glob_timeout=10.0,
            read_timeout=5.0,
            search=SearchToolConfig(index="hybrid", results=10, max_results=50, timeout=120.0),
            concurrency=64,
            observation="results",
            table_rows=10,
            table_order="score",
            grep_include="*.py",
            exclude_tests=False,
        ),
        **changed,
    )


def paper_sandbox(**changed: Any) -> SandboxConfig:
    """Return the values of conf/sandbox/worktrees.yaml, others by keyword.

    Raises:
        TypeError: a keyword that is no field of SandboxConfig.
    """
    return dataclasses.replace(
        SandboxConfig(clone_timeout=600.0, min_free_gib=2.0, actors=1, max_worktrees=2000), **changed
    )
