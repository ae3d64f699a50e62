"""grep(pattern, path, include, ignore_case): matching lines, and for every matching file what it holds, as data."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from codegrep.config import ToolsConfig
from codegrep.issues.paths import is_test_path
from codegrep.protocol.calls import FileMatches, ToolStatus
from codegrep.protocol.observation import ROW_TEXT_CHARS
from codegrep.sandbox.guard import Guard, PathRefused
from codegrep.sandbox.tools.arguments import check_arguments
from codegrep.sandbox.tools.formatting import fit, shown_line, shown_path
from codegrep.sandbox.tools.literals import any_text, whole_literals
from codegrep.sandbox.tools.matches import (
    MAX_OUTPUT,
    BlockReader,
    FileHits,
    Found,
    LineReader,
    MatchReader,
    PlaceReader,
    name_words,
    numbered,
)
from codegrep.sandbox.tools.pathglob import BadGlob, compiled, is_seen
from codegrep.sandbox.tools.processes import ProcessFailed, ProcessTimeout
from codegrep.sandbox.tools.search import SearchPrograms, line_bytes, short_reason, split_globs
from codegrep.sandbox.tools.shared_search import LeaveOut, Question, Together, any_of
from codegrep.sandbox.tools.tool import Argument, ArgumentError, Outcome, fault, mistake
from codegrep.text import around

#: Files that the data of one result names.
MAX_FILES = 200
# Of the deadline, what a search together with others may take; then each goes on alone.
_SHARED = 0.3
_ABOUT_THE_REQUEST = re.compile(r"regex|glob|pattern|size limit", re.IGNORECASE)


class Grep:
    """Regular-expression search with ripgrep (Rust syntax: linear time, no look-around, no back-references).

    Which files a glob sees is pathglob's rule; `.gitignore` has no say, links are not followed, binary files are
    skipped. Results are in the order of paths, so the same call always gives the same answer. Calls at the same time
    whose patterns are plain texts share a process (shared_search.py), which changes no answer.

    A search that meets its deadline is the model's mistake when it had a fair share of a core until then (the pattern
    is too heavy), and the machine's fault when it had not.
    """

    name = "grep"
    description = "Search file contents with a regular expression. Gives path:line:text for each matching line."

    def __init__(self, limits: ToolsConfig, programs: SearchPrograms | None = None) -> None:
        self._limits = limits
        self._programs = programs or SearchPrograms()
        self._width = line_bytes(limits.max_line_chars)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="lines")
        self._together = Together(limits.max_matches, MAX_FILES, self._width, self._threads)
        self.parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "regular expression"},
                "path": {"type": "string", "description": "folder or file to search, default: the whole repository"},
                "include": {
                    "type": "string",
                    "description": f"glob of file names, default: {limits.grep_include or 'all files'}",
                },
                "ignore_case": {"type": "boolean", "description": "ignore upper and lower case, default: false"},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        }
        self._defaults: dict[str, Argument] = {"path": ".", "include": limits.grep_include, "ignore_case": False}

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Argument]:
        """See Tool.check."""
        checked = check_arguments(self.parameters, self._defaults, arguments)
        if not checked["pattern"]:
            raise ArgumentError("argument 'pattern' is empty")
        if "\n" in str(checked["pattern"]) or "\r" in str(checked["pattern"]):
            raise ArgumentError("argument 'pattern' contains a line break; lines are searched one by one")
        try:
            for glob in split_globs(str(checked["include"])):
                compiled(glob.removeprefix("!"))
        except BadGlob as error:
            raise ArgumentError(f"argument 'include' is no glob: {error}") from None
        return checked

    async def run(self, root: Path, arguments: Mapping[str, Argument]) -> Outcome:
        """See Tool.run."""
        guard = Guard(root)
        try:
            path = guard.resolve(str(arguments["path"]))
        except PathRefused as refused:
            return mistake(str(refused))
        is_file = _is_file(root, path)
        if is_file is None:
            return mistake(_not_searchable(root, path))
        search = _Search(
            self._programs,
            root,
            pattern=str(arguments["pattern"]),
            path=path,
            is_file=is_file,
            include=[glob.removeprefix("./") for glob in split_globs(str(arguments["include"]))],
            ignore_case=bool(arguments["ignore_case"]),
            limits=self._limits,
            guard=guard,
        )
        try:
            found = await self._found(search)
            parts = await self._parts(search, found)
        except ProcessFailed as error:
            return fault(str(error))
        except ProcessTimeout as error:
            if error.starved:
                return fault(f"{error}, the machine is too busy", timed_out=True)
            text = f"ERROR: {error}; use a simpler pattern or name a folder in path"
            return Outcome(ToolStatus.MODEL_ERROR, text, pure=False, timed_out=True)
        except _BadRequest as error:
            return mistake(str(error))
        except _SearchBroke as error:
            return fault(str(error))
        return self._outcome(search, found, parts)

    async def _found(self, search: _Search) -> Found:
        texts = whole_literals(search.pattern, search.ignore_case)
        if texts is not None and self._programs.has_ripgrep and not search.is_file:
            question = Question(search.pattern, texts, search.ignore_case, name_words(search.pattern))
            same = (search.root, search.path, tuple(search.include), question.is_broad)

            async def run(questions: Sequence[Question]) -> tuple[LineReader, LeaveOut] | None:
                now = asyncio.get_running_loop().time()
                shared = replace(search, pattern=any_of(questions), ignore_case=False, began=now)
                lines = await shared.lines()
                return None if lines is None else (lines, search.is_left_out)

            if (found := await self._together.ask(same, question, run)) is not None:
                return found
        # The pattern is not to blame for what others made it wait for.
        latest = asyncio.get_running_loop().time() - _SHARED * self._limits.grep_timeout
        search.began = max(search.began, latest)
        return Found.of(await search.run(), self._limits.max_matches, MAX_FILES)

    async def _parts(self, search: _Search, found: Found) -> _Parts:
        """Return what is around the first match of those lines of which the model is shown only a part."""
        limits = self._limits
        lines, most = found.first, limits.max_line_chars
        if limits.observation == "table":
            lines, most = [(hits.path, hits.telling) for hits in found.telling], ROW_TEXT_CHARS
        texts = any_text(search.pattern, search.ignore_case)
        parts: _Parts = {}
        unknown: list[tuple[bytes, int]] = []
        for path, line in lines:
            if len(line) <= most:
                continue
            number, text = numbered(line, self._width)
            if len(text.strip()) <= most:
                continue
            content = line.partition(b":")[2]
            match = texts.search(content) if texts is not None and len(content) < self._width else None
            if match is None:
                unknown.append((path, number))
            else:
                parts[path, number] = (text, len(content[: match.start()].decode("utf-8", "replace")))
        if unknown:
            places = await search.places(unknown)
            reading = asyncio.get_running_loop().run_in_executor(
                self._threads, _parts_of_lines, search, places, self._width
            )
            parts |= await reading
        return parts

    def _outcome(self, search: _Search, found: Found, parts: _Parts) -> Outcome:
        limits = self._limits
        if not found.files:
            return Outcome(ToolStatus.OK, self._nothing(search))
        lines = []
        for path, line in found.first:
            number, text = numbered(line, self._width)
            text, at = parts.get((path, number), (text, 0))
            lines.append(f"{shown_path(path)}:{number}:{shown_line(text, limits.max_line_chars, at)}")

        def header(shown: int) -> str:
            if shown == found.count:
                return ""
            plural = "s" * (found.files > 1)
            return f"[first {shown} of {found.count} matching lines in {found.files} file{plural}]"

        text, shown = fit(lines, limits.max_chars, header)
        files = tuple(self._told(hits, parts) for hits in found.telling)
        return Outcome(ToolStatus.OK, text, files, truncated=shown < found.count, files_found=found.files)

    def _told(self, hits: FileHits, parts: _Parts) -> FileMatches:
        number, text = numbered(hits.telling, self._width)
        text, at = parts.get((hits.path, number), (text, 0))
        at -= len(text) - len(text.lstrip())
        text, at = around(text.strip(), max(0, at), self._limits.max_line_chars)
        return FileMatches(hits.shown, hits.count, number, shown_line(text, len(text)), at)

    def _nothing(self, search: _Search) -> str:
        if search.is_file and search.binary:
            return f"[{search.path} matches, but it is a binary file: its lines are not shown]"
        where = search.path if search.path != "." else "the repository"
        what = f" in files {','.join(search.include)}" if search.include and not search.is_file else ""
        tests = ", test files left out" if self._limits.exclude_tests else ""
        return shown_line(f"[no matching lines{what} in {where}{tests}]", self._limits.max_chars)


#: By path and number of a line: a part of it, and where in that the first match begins.
_Parts = dict[tuple[bytes, int], tuple[str, int]]


class _BadRequest(Exception):
    pass


class _SearchBroke(Exception):
    pass


@dataclass
class _Search:
    """One search: usually one process; three for a pattern that matches more than can be read."""

    programs: SearchPrograms
    root: Path
    pattern: str
    path: str
    is_file: bool
    include: list[str]
    ignore_case: bool
    limits: ToolsConfig
    guard: Guard
    binary: bool = False
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    async def run(self) -> list[FileHits]:
        """All matching files in the order of their paths."""
        width = self.limits.max_line_chars
        include = self._include()
        command = self.programs.matches(self.pattern, [self.path], include, self.ignore_case, width)
        reader = await self._read(command, MAX_OUTPUT)
        if not reader.overflowed:
            return self._in_order(reader)
        command = self.programs.counts(self.pattern, [self.path], include, self.ignore_case)
        hits = self._in_order(await self._read(command, 8 * MAX_OUTPUT, counts=True))
        places = [os.fsdecode(h.path) for h in hits[:MAX_FILES]]
        command = self.programs.matches(
            self.pattern, places, [], self.ignore_case, width, per_file=self.limits.max_matches
        )
        lines = {h.path: h for h in (await self._read(command, 8 * MAX_OUTPUT)).hits()}
        return [h.with_lines(lines.get(h.path)) for h in hits]

    async def lines(self) -> LineReader | None:
        """All matching lines, whole; None where that is more than can be read, takes too long, or fails."""
        reader = LineReader(MAX_OUTPUT)
        command = self.programs.matches(self.pattern, [self.path], self._include(), self.ignore_case, None)
        left = self.began + _SHARED * self.limits.grep_timeout - asyncio.get_running_loop().time()
        try:
            end = await self.programs.runner.run(command, self.root, max(0.05, left), reader.take)
        except (ProcessTimeout, ProcessFailed):
            return None
        return reader if not end.stopped and end.code in (0, 1) else None

    async def places(self, lines: Collection[tuple[bytes, int]]) -> dict[tuple[bytes, int], int]:
        """Return where in its file the first match of each line begins, in bytes, as far as time and output allow."""
        reader = PlaceReader(lines)
        paths = [os.fsdecode(path) for path in sorted({path for path, _ in lines})]
        command = self.programs.places(self.pattern, paths, self.ignore_case)
        left = self.began + self.limits.grep_timeout - asyncio.get_running_loop().time()
        with contextlib.suppress(ProcessTimeout, ProcessFailed):
            await self.programs.runner.run(command, self.root, max(0.05, left), reader.take)
        return reader.places

    def is_left_out(self, path: bytes) -> bool:
        """Return whether a file that was searched is no part of the answer."""
        name = os.fsdecode(path)
        # ripgrep has chosen by the globs, but for what is hidden.
        if not self.is_file and (not self.programs.has_ripgrep or name.startswith(".") or "/." in name):
            exempt = 0 if self.path == "." else self.path.count("/") + 1
            if not is_seen(name, self.include, exempt):
                return True
        if not self.guard.contains(name):
            return True
        return self.limits.exclude_tests and is_test_path(shown_path(path))

    def _include(self) -> list[str]:
        return [] if self.is_file else self.include

    async def _read(self, command: Sequence[str], max_output: int, counts: bool = False) -> MatchReader:
        keep = self.limits.max_matches
        reader = (
            MatchReader(keep, max_output, name_words(self.pattern), counts)
            if counts or not self.programs.has_ripgrep
            else BlockReader(keep, max_output, name_words(self.pattern))
        )
        left = self.began + self.limits.grep_timeout - asyncio.get_running_loop().time()
        try:
            end = await self.programs.runner.run(command, self.root, max(0.05, left), reader.take)
        except ProcessTimeout as error:
            raise ProcessTimeout(self.limits.grep_timeout, error.starved) from None
        reason = short_reason(end.stderr)
        if not end.stopped and end.code == 2 and reason:
            if not self.programs.has_ripgrep or _ABOUT_THE_REQUEST.search(end.stderr):
                raise _BadRequest(f"{reason} (regular expression or glob; escape special characters with a backslash)")
            raise _SearchBroke(f"the search program failed: {reason}")
        if not end.stopped and end.code not in (0, 1, 2):
            raise _SearchBroke(f"the search program ended with code {end.code}")
        self.binary = reader.ended_binary
        return reader

    def _in_order(self, reader: MatchReader) -> list[FileHits]:
        return sorted((h for h in reader.hits() if not self.is_left_out(h.path)), key=lambda h: h.path)


def _parts_of_lines(search: _Search, places: Mapping[tuple[bytes, int], int], width: int) -> _Parts:
    """Read what is before and behind each place, up to the line's ends."""
    parts: _Parts = {}
    for (path, number), offset in places.items():
        with contextlib.suppress(OSError), (search.root / os.fsdecode(path)).open("rb") as file:
            if (mark := file.read(3)) == codecs.BOM_UTF8 and search.programs.has_ripgrep:
                offset += len(mark)  # ripgrep does not count it
            elif mark[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                continue  # ripgrep counts in another encoding
            start = max(0, offset - width)
            file.seek(start)
            read = file.read(2 * width)
            before = read[: offset - start].rpartition(b"\n")[2].decode("utf-8", "replace")
            behind = read[offset - start :].partition(b"\n")[0].decode("utf-8", "replace")
            parts[path, number] = (before + behind, len(before))
    return parts


def _is_file(root: Path, path: str) -> bool | None:
    """Return whether this is a file; False for a folder, None for neither."""
    try:
        mode = os.lstat(f"{root}/{path}").st_mode
    except OSError:
        return None
    return stat.S_ISREG(mode) if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None


def _not_searchable(root: Path, path: str) -> str:
    if os.path.lexists(root / path):
        return f"{shown_path(os.fsencode(path))} is neither a file nor a folder"
    hint = "; path takes no wildcards, use include" if any(c in path for c in "*?[{") else ""
    return f"no such file or folder: {shown_path(os.fsencode(path))}{hint}"
