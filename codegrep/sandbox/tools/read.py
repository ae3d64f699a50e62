"""read(path, start, end): numbered lines of one file."""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from codegrep.config import ToolsConfig
from codegrep.protocol.calls import FileMatches, ToolStatus
from codegrep.sandbox.guard import Guard, PathRefused
from codegrep.sandbox.tools.arguments import check_arguments
from codegrep.sandbox.tools.formatting import fit, shown_line, shown_path
from codegrep.sandbox.tools.pathglob import is_hidden
from codegrep.sandbox.tools.tool import Argument, ArgumentError, Outcome, fault, mistake

#: Larger files are not read; grep searches them.
MAX_BYTES = 16 << 20
_SNIFF = 8192
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LISTED = 20


class Read:
    """Gives `number<TAB>text` for each line, under a header that says which lines of how many they are.

    UTF-8 with or without a byte order mark, UTF-16 with one; other bytes are shown as U+FFFD and the header says so. LF
    and CRLF end a line. Binary files (a NUL byte near the start), files over 16 MiB and everything that is no regular
    file are refused in words; a folder is answered with some of its names.
    """

    name = "read"
    description = "Read lines of a file."

    def __init__(self, limits: ToolsConfig) -> None:
        self._limits = limits
        # Own threads: the loop's are few, and calls that waited for one would meet their deadline while waiting.
        self._threads = ThreadPoolExecutor(max(1, limits.concurrency), thread_name_prefix="read")
        self.parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "file to read, relative to the repository's root"},
                "start": {"type": "integer", "description": "first line, default: 1"},
                "end": {
                    "type": "integer",
                    "description": f"last line, default: the end of the file; at most {limits.max_lines} lines",
                },
            },
            "required": ["path"],
            "additionalProperties": False,
        }

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Argument]:
        """See Tool.check."""
        checked = check_arguments(self.parameters, {"start": 1, "end": None}, arguments)
        start, end = checked["start"], checked["end"]
        assert isinstance(start, int)
        checked["start"] = start = max(1, start)
        if isinstance(end, int):
            if end < 0:  # -1 is how models say "to the end"
                checked["end"] = None
            elif end < start:
                raise ArgumentError(f"end={end} is before start={start}")
        return checked

    async def run(self, root: Path, arguments: Mapping[str, Argument]) -> Outcome:
        """See Tool.run."""
        try:
            path = Guard(root).resolve(str(arguments["path"]))
        except PathRefused as refused:
            return mistake(str(refused))
        try:
            # At most 16 MiB are read, so a thread that meets the deadline ends soon by itself.
            loading = asyncio.get_running_loop().run_in_executor(self._threads, _load, root / path)
            content = await asyncio.wait_for(loading, self._limits.read_timeout)
        except TimeoutError:
            return fault(f"timed out after {self._limits.read_timeout:g}s", timed_out=True)
        except _Unreadable as problem:
            return mistake(f"{shown_path(os.fsencode(path))} {problem}")
        except OSError as error:
            return fault(f"{shown_path(os.fsencode(path))} cannot be read ({error.strerror})")
        end = arguments["end"]
        return self._outcome(path, content, int(arguments["start"] or 1), end if isinstance(end, int) else None)

    def _outcome(self, path: str, content: bytes, start: int, end: int | None) -> Outcome:
        limits = self._limits
        name = shown_path(os.fsencode(path))
        if not content:
            return Outcome(ToolStatus.OK, f"[{name} is empty]", (FileMatches(name, 0),))
        text, note = _decode(content)
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        total = len(lines)
        if start > total:
            return mistake(f"{name} has only {total} lines, start={start} is behind its end")
        last = min(end or total, total)
        lines = lines[start - 1 : min(last, start - 1 + limits.max_lines)]
        numbered = [f"{number}\t{shown_line(line, limits.max_line_chars)}" for number, line in enumerate(lines, start)]
        if any(len(line.rstrip("\r")) > limits.max_line_chars for line in lines):
            note += ", long lines cut: grep for a word shows what is around it"

        def header(shown: int) -> str:
            more = f", go on with start={start + shown}" if start - 1 + shown < last else ""
            return (
                f"[{name}, lines {start}-{start - 1 + shown} of {total}{more}{note}]"
                if shown
                else _too_long(name, start)
            )

        body, shown = fit(numbered, limits.max_chars, header)
        first = shown_line(lines[0].strip(), limits.max_line_chars)
        files = (FileMatches(name, shown, start, first),)
        return Outcome(ToolStatus.OK, body, files, truncated=start - 1 + shown < last)


class _Unreadable(Exception):
    pass


def _too_long(name: str, start: int) -> str:
    return f"[{name}, line {start} does not fit into one result]"


def _load(file: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        _Unreadable: there is nothing to read here, in words. OSError: the disk's fault.
    """
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer. O_NOFOLLOW: the guard has followed all links already.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise _Unreadable("does not exist; find the file with glob or grep") from None
    except OSError as error:
        if file.is_symlink() or not file.is_file():
            raise _Unreadable("is no regular file") from error
        raise
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise _Unreadable(f"is a folder{_listing(file)}")
        if not stat.S_ISREG(status.st_mode):
            raise _Unreadable("is no regular file")
        if status.st_size > MAX_BYTES:
            raise _Unreadable(f"has {status.st_size >> 20} MiB, too much to read; search it with grep")
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            content = stream.read(MAX_BYTES)
    finally:
        os.close(descriptor)
    if b"\0" in content[:_SNIFF] and not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _Unreadable("is a binary file")
    return content


def _listing(folder: Path) -> str:
    with os.scandir(os.fsencode(folder)) as entries:
        names = sorted(
            e.name + (b"/" if e.is_dir(follow_symlinks=False) else b"")
            for e in entries
            if not is_hidden(os.fsdecode(e.name))
        )
    shown = [shown_path(name) for name in names[:_LISTED]]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f" with {', '.join(shown)}{more}; read one file" if shown else " without files"


def _decode(content: bytes) -> tuple[str, str]:
    mark, encoding = next((m for m in _MARKS if content.startswith(m[0])), (b"", "utf-8"))
    content = content[len(mark) :]
    try:
        return content.decode(encoding), ""
    except UnicodeDecodeError:
        return content.decode(encoding, "replace"), f", not {encoding.upper()}: unreadable bytes are shown as \ufffd"
