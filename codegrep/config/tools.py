"""conf/tools: what the agent searches with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ToolsConfig:
    """conf/tools: the three tools, their caps (SPEC 1.2) and how results are shown.

    Attributes:
        names: tools offered to the model.
        max_calls: calls of one turn that are executed (8).
        max_matches: matches of one grep (50). max_paths: paths of one glob (100). max_lines: lines of one read (200).
        max_chars: characters of one result (4,096).
        max_observation_chars: characters of all results of a turn together; 0 means no such cap (the paper's).
        max_line_chars: a longer line is shown as a preview.
        grep_timeout, glob_timeout, read_timeout: seconds (10, 10, 5).
        concurrency: calls at once in one sandbox (64).
        observation: "results" shows each result by itself (the paper's form); "table" merges the greps of a turn into
        one
            table of files.
        table_rows: files of the table.
        table_order: "score" (the tool's own ranking), "path", or "shuffled" (by a hash of issue and path: gives
        nothing away).
        grep_include: glob that grep is limited to when the call names none ("*.py" in the paper).
        exclude_tests: leave test files out of grep and glob (never of read).
    """

    names: list[str]
    max_calls: int
    max_matches: int
    max_paths: int
    max_lines: int
    max_chars: int
    max_observation_chars: int
    max_line_chars: int
    grep_timeout: float
    glob_timeout: float
    read_timeout: float
    concurrency: int
    observation: str
    table_rows: int
    table_order: str
    grep_include: str
    exclude_tests: bool
