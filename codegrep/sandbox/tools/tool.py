"""What a tool is, and what its calls come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from codegrep.protocol.calls import FileMatches, ToolStatus

#: A checked argument.
Argument = str | int | bool | None


class ArgumentError(Exception):
    """The model's arguments cannot be used. `str(error)` is a sentence that the model can act on."""


@dataclass(frozen=True)
class Outcome:
    """The answer to one call, before it has a number.

    Attributes:
        status, text, files, truncated, files_found: as in ToolResult.
        pure: the same call on the same tree gives the same answer again, so it may be cached. False for everything that
            depends on the machine.
        timed_out: the call met its deadline.
    """

    status: ToolStatus
    text: str
    files: tuple[FileMatches, ...] = ()
    truncated: bool = False
    pure: bool = True
    timed_out: bool = False
    files_found: int = 0


class Tool(Protocol):
    """One read-only tool. A new one is a class like this, named in tools.names by its dotted name.

    The class is made with one argument, the ToolsConfig; it may also take `programs` and `index_folder`
    (codegrep.sandbox.toolbox). With an attribute `has_own_queue = True` its calls take no place of
    `tools.concurrency`.
    """

    name: str
    description: str
    #: JSON schema of the arguments: an object with properties of type string, integer or boolean.
    parameters: Mapping[str, Any]

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Argument]:
        """Return the arguments in canonical form: types right, defaults filled in.

        Raises:
            ArgumentError: with what is wrong.
        """
        ...

    async def run(self, root: Path, arguments: Mapping[str, Argument]) -> Outcome:
        """Run a checked call on the tree at `root` (absolute, real). Cancelling it ends everything that it started."""
        ...


def mistake(text: str) -> Outcome:
    """Return the model's mistake, in words."""
    return Outcome(ToolStatus.MODEL_ERROR, f"ERROR: {text}")


def fault(text: str, timed_out: bool = False) -> Outcome:
    """Return the machine's fault, in words."""
    return Outcome(ToolStatus.INFRASTRUCTURE, f"ERROR: {text}", pure=False, timed_out=timed_out)
