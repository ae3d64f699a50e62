"""One process at a time for what writes into one folder: a run, a sweep, a search."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codegrep.errors import CodegrepError


@contextmanager
def alone(folder: Path, what: str, fix: str = "Wait for it.") -> Iterator[None]:
    """Holds the folder, which is made when it is missing. The kernel lets go when the process ends, however it ends.

    Args:
        what: "run", "sweep", for the message.

    Raises:
        CodegrepError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CodegrepError(f"this very {what} is going on in another process ({folder.name})", fix) from None
        yield
