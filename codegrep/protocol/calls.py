"""Tool calls and their results, as data. Text comes from them in codegrep.protocol.observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ToolStatus(StrEnum):
    """Who is answerable for the result of a call."""

    OK = "ok"
    MODEL_ERROR = "model_error"  # malformed call, bad regex, no such file, path outside the repository
    REFUSED = "refused"  # beyond the calls that a turn may make
    INFRASTRUCTURE = "infrastructure"  # timed out by the machine's fault, tool could not start, worktree lost


@dataclass(frozen=True)
class ToolCall:
    """A well-formed call: a name and JSON arguments. Whether the tool exists is the toolbox's business."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class MalformedCall:
    """Text that was meant as a call but cannot be read as one.

    Attributes:
        raw: the text between the call markers, cut to 500 characters.
        reason: what is wrong, one sentence that the model is shown.
    """

    raw: str
    reason: str


@dataclass(frozen=True, slots=True)
class FileMatches:
    """What one call found in one file.

    Attributes:
        path: repo-relative POSIX path.
        count: matching lines (grep), 1 (glob), lines shown (read).
        line: 1-based number of the line shown, 0 where there is none.
        text: that line, stripped and shortened; "" where there is none.
        at: where in the text the first match begins, if that is known.
    """

    path: str
    count: int
    line: int = 0
    text: str = ""
    at: int = 0


@dataclass(frozen=True)
class ToolResult:
    """The answer to one call.

    Attributes:
        number: 1-based place of the call in its turn; results are given back in this order.
        call: the call, or the malformed one.
        status: see ToolStatus.
        text: what the model reads for this call, already capped; every cut is stated in it.
        files: the same as data, in the order of the text.
        truncated: something of the text was cut.
        files_found: files that matched, also where `files` names only some of them; 0 stands for len(files).
        seconds: wall time of the call, queueing left out.
    """

    number: int
    call: ToolCall | MalformedCall
    status: ToolStatus
    text: str
    files: tuple[FileMatches, ...] = ()
    truncated: bool = False
    seconds: float = 0.0
    files_found: int = 0

    @property
    def matched_files(self) -> int:
        """How many files matched, whether or not they are named."""
        return max(self.files_found, len(self.files))
