"""conf/tools: what the agent searches with."""

from __future__ import annotations

from typing import Literal

from codegrep.config.setting import group, setting


@group
class ToolsConfig:
    """conf/tools: the tools, their caps, and how results are shown (CodeGrep 3.3, A.1)."""

    names: list[str] = setting("tools offered to the model; a dotted class name is possible", paper="grep, glob, read")
    max_calls: int = setting("calls of one turn that are executed", ge=1, paper="8")
    max_matches: int = setting("matching lines of a grep", ge=1, paper="50")
    max_paths: int = setting("paths of a glob", ge=1)
    max_lines: int = setting("lines of a read", ge=1, paper="200")
    max_chars: int = setting("characters of one result", ge=1, paper="4,096")
    max_observation_chars: int = setting("characters of a turn's results together; 0: no cap", ge=0, paper="no cap")
    max_line_chars: int = setting("characters of a line that are shown", ge=1)
    grep_timeout: float = setting("seconds", gt=0, paper="10")
    glob_timeout: float = setting("seconds", gt=0, paper="10")
    read_timeout: float = setting("seconds", gt=0, paper="5")
    concurrency: int = setting("calls at once in one sandbox", ge=1, paper="64")
    observation: Literal["results", "table"] = setting(
        "results shows each result; table merges the greps of a turn into one ranked table of files", paper="results"
    )
    table_rows: int = setting("files of the table", ge=1)
    table_order: Literal["score", "path", "shuffled"] = setting(
        "order of the table; shuffled by a hash of issue and path gives nothing away"
    )
    grep_include: str = setting("glob that grep is limited to when the call names none", paper="*.py")
    exclude_tests: bool = setting("leave test files out of grep and glob, never of read", paper="false")
