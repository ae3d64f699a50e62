"""conf/tools: what the agent searches with."""

from __future__ import annotations

from typing import Literal

from codegrep.config.setting import group, setting


@group
class SearchToolConfig:
    """tools.search: the tool `search`, which ranks units of code by an index instead of matching a pattern."""

    # Only an Index can stand behind a tool: what looks at gold (oracle) or answers no query is a row of the evaluation.
    index: Literal["hybrid", "bm25", "static", "reciprocal", "colgrep"] = setting(
        "hybrid: learned fusion of words, vectors and what the query spells out; bm25: words; static: word vectors; "
        "reciprocal: ranks of bm25 and static; colgrep: that program, where it is installed"
    )
    results: int = setting("results where the call names no number", ge=1)
    max_results: int = setting("results that a call may ask for", ge=1)
    timeout: float = setting("seconds; of a first call on a tree, its index included", gt=0)


@group
class ToolsConfig:
    """conf/tools: the tools, their caps, and how results are shown (CodeGrep 3.3, A.1)."""

    names: list[str] = setting(
        "tools offered to the model (grep, glob, read, search); a dotted class name is possible",
        min_length=1,
        paper="grep, glob, read",
    )
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
    search: SearchToolConfig = setting("see tools.search")
    concurrency: int = setting("calls at once in one sandbox", ge=1, paper="64")
    observation: Literal["results", "table"] = setting(
        "results shows each result; table merges the greps and searches of a turn into one ranked table of files",
        paper="results",
    )
    table_rows: int = setting("files of the table", ge=1)
    table_order: Literal["score", "path", "shuffled"] = setting(
        "order of the table; shuffled by a hash of issue and path gives nothing away"
    )
    grep_include: str = setting("glob that grep is limited to when the call names none", paper="*.py")
    exclude_tests: bool = setting("leave test files out of grep, glob and search, never of read", paper="false")
