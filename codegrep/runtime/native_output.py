"""Keeps what native code (Ray's C++ core) and the warnings of libraries say out of the terminal, in a file."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_STDERR = 2


@contextmanager
def native_output_to(log: Path) -> Iterator[None]:
    """File descriptor 2 and Python's warnings append to `log`; `sys.stderr` still goes where it went.

    Children that inherit standard error write to the file too. Nothing is changed where `sys.stderr` is no file of its
    own (notebooks, test runners).
    """
    try:
        redirectable = sys.stderr.fileno() == _STDERR
    except (AttributeError, OSError, ValueError):
        redirectable = False
    if not redirectable:
        yield
        return
    before = sys.stderr
    before.flush()
    terminal = os.dup(_STDERR)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        os.dup2(file.fileno(), _STDERR)
    # Never closed: a logging handler that was made meanwhile may hold it to the end of the process.
    sys.stderr = io.TextIOWrapper(
        io.FileIO(terminal, "w"), before.encoding, errors="backslashreplace", write_through=True
    )

    def warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
        with log.open("a", encoding="utf-8") as out:
            out.write(warnings.formatwarning(message, category, filename, lineno))

    shown, warnings.showwarning = warnings.showwarning, warn
    try:
        yield
    finally:
        warnings.showwarning = shown
        sys.stderr.flush()
        os.dup2(terminal, _STDERR)
        sys.stderr = before
