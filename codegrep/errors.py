"""Errors that are shown to a person: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import errno
import re

_FULL = re.compile("No space left on device|disk is full")


class CodegrepError(Exception):
    """Base of every error that stops a run with one line on the terminal and exit code 2, no traceback.

    Args:
        what: what is wrong and where, one sentence without a final full stop.
        fix: what the person can do about it, or "" where nothing sensible can be said.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        self.what = " ".join(what.split())
        self.fix = " ".join(fix.split())
        super().__init__(f"{self.what}. {self.fix}" if self.fix else self.what)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.what, self.fix)


class ConfigError(CodegrepError):
    """The configuration is wrong: unknown key, wrong type, or an impossible combination."""


class DataError(CodegrepError):
    """An issue source as a whole cannot be used (single broken rows are counted, not raised)."""


class ModelError(CodegrepError):
    """A model folder or hub id cannot be used."""


class RepositoryError(CodegrepError):
    """A repository cannot be cloned, or a commit cannot be found in it."""


class DiskError(CodegrepError):
    """Too little disk space for what is about to be written."""


def disk_error(error: BaseException | None) -> DiskError | None:
    """Return one line for an error that comes of a full disk, also where libraries and git wrapped it; else None."""
    while error is not None:
        if isinstance(error, DiskError):
            return error
        text = str(error)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or _FULL.search(text):
            where = error.filename if isinstance(error, OSError) else None
            line = next((line for line in text.split("\n") if _FULL.search(line)), text)
            fix = "Free some space, or set outputs= to another disk; the same command continues"
            return DiskError(f"a disk is full ({where or line})", fix)
        error = error.__cause__ or error.__context__
    return None


class InfrastructureError(CodegrepError):
    """The machine's fault, never the model's: a lost worker, a dead engine, a tool that could not be started."""


class TokenMismatchError(CodegrepError):
    """A turn's tokens do not fit the chat format, and the configuration says that this is not to be tolerated."""
