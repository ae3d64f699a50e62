"""How a command ends that could not do its work: one line and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

from codegrep.errors import CodegrepError, disk_error


def end(error: BaseException) -> NoReturn:
    """End with one line for people; a mistake in the code is raised again, since its trace is wanted."""
    if isinstance(error, KeyboardInterrupt):
        sys.exit(130)
    line = disk_error(error)
    if line is None and not isinstance(error, CodegrepError):
        raise error
    print(f"codegrep: {line or error}", file=sys.stderr)
    sys.exit(2)
