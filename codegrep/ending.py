"""How a command ends that could not do its work: one line and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

from codegrep.errors import CodegrepError, disk_error

# Libraries whose errors are about what was typed or written in a YAML file.
_OF_CONFIGURATION = frozenset({"hydra", "omegaconf", "yaml"})


def end(error: Exception | KeyboardInterrupt) -> NoReturn:
    """End with one line for people; a mistake in the code is raised again, since its trace is wanted."""
    if isinstance(error, KeyboardInterrupt):
        sys.exit(130)
    line: CodegrepError | None = disk_error(error)
    if line is None and (isinstance(error, ValueError) or type(error).__module__.split(".")[0] in _OF_CONFIGURATION):
        from codegrep.compose import explain  # heavy: only where there is something to explain

        line = explain(error)
    if line is None and not isinstance(error, CodegrepError):
        raise error
    print(f"codegrep: {line or error}", file=sys.stderr)
    sys.exit(2)
