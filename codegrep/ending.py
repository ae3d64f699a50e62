"""How a command ends that could not do its work: one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

from codegrep.errors import CodegrepError, disk_error

# Libraries whose errors are about what was typed or written in a YAML file.
_OF_CONFIGURATION = frozenset({"hydra", "omegaconf", "yaml"})


def end(error: Exception | KeyboardInterrupt, *, composing: bool = False) -> NoReturn:
    """End with one line for people; a mistake in the code with its trace and exit code 1.

    Args:
        error: what came up.
        composing: the configuration was being composed; then a ValueError is about what was typed.
    """
    if isinstance(error, KeyboardInterrupt):
        sys.exit(130)
    if isinstance(error, BrokenPipeError):  # `… | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    line: CodegrepError | None = disk_error(error)
    if line is None and (
        (composing and isinstance(error, ValueError)) or type(error).__module__.split(".")[0] in _OF_CONFIGURATION
    ):
        from codegrep.compose import explain  # heavy: only where there is something to explain

        line = explain(error)
    if line is None and not isinstance(error, CodegrepError):
        traceback.print_exception(error)
        sys.exit(1)
    print(f"codegrep: {line or error}", file=sys.stderr)
    sys.exit(2)
