"""A lock on a folder, so that one process at a time writes into it: a run, a sweep, a search."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codegrep.errors import CodegrepError


@contextmanager
def hold(folder: Path, what: str, fix: str = "Wait for it.") -> Iterator[None]:
    """Lock a folder, which is made when it is missing. The kernel unlocks it when the process ends, however it ends.

    Args:
        folder: what is locked.
        what: "run", "sweep" or "search", for the message.
        fix: what the person can do, for the message.

    Raises:
        CodegrepError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CodegrepError(f"this {what} is running in another process ({folder.name})", fix) from None
        yield
