"""glob(pattern, path): names of files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from codegrep.config import ToolsConfig
from codegrep.issues.paths import is_test_path
from codegrep.protocol.calls import FileMatches, ToolStatus
from codegrep.sandbox.guard import Guard, PathRefused
from codegrep.sandbox.tools.arguments import check_arguments
from codegrep.sandbox.tools.formatting import fit, shown_line, shown_path
from codegrep.sandbox.tools.listing import Listing, plain_glob
from codegrep.sandbox.tools.pathglob import matches_glob
from codegrep.sandbox.tools.processes import ProcessFailed, ProcessTimeout
from codegrep.sandbox.tools.search import SearchPrograms, short_reason
from codegrep.sandbox.tools.tool import Argument, ArgumentError, Outcome, fault, mistake

# A tree with more names than this (about a million files) is the machine's problem, not the model's.
_MAX_OUTPUT = 64 << 20


class Glob:
    """Lists files by glob, sorted by path. Hidden files only where the glob spells their dot.

    `*` and `?` stay within a name, `**` spans folders, `{a,b}` are alternatives; a glob without a slash is for names at
    any depth below path. Folders are not listed.
    """

    name = "glob"
    description = "List files whose path matches a glob such as src/**/*.py; *.py matches at any depth."

    def __init__(self, limits: ToolsConfig, programs: SearchPrograms | None = None) -> None:
        self._limits = limits
        self._programs = programs or SearchPrograms()
        self._listing = Listing()
        # One at a time: who asks about a tree that is being listed waits for it anyway.
        self._lister = ThreadPoolExecutor(1, thread_name_prefix="listing")
        self._threads = ThreadPoolExecutor(max(1, limits.concurrency), thread_name_prefix="glob")
        self.parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "glob of file paths"},
                "path": {"type": "string", "description": "folder to list, default: the whole repository"},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        }

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Argument]:
        """See Tool.check."""
        checked = check_arguments(self.parameters, {"path": "."}, arguments)
        pattern = str(checked["pattern"]).strip()
        while pattern.startswith("./"):
            pattern = pattern[2:]
        if not pattern.strip("/"):
            raise ArgumentError("argument 'pattern' is empty")
        if pattern.startswith("!"):
            raise ArgumentError("argument 'pattern' must say what to list; a leading '!' is not possible")
        if ".." in pattern.split("/") or pattern.startswith("~"):
            raise ArgumentError("argument 'pattern' leads out of the repository")
        checked["pattern"] = pattern
        return checked

    async def run(self, root: Path, arguments: Mapping[str, Argument]) -> Outcome:
        """See Tool.run."""
        guard = Guard(root)
        pattern = str(arguments["pattern"])
        try:
            folder = guard.resolve(str(arguments["path"]))
            if pattern.startswith("/"):
                pattern = _from_root(guard, pattern)
        except PathRefused as refused:
            return mistake(str(refused))
        if not (root / folder).is_dir():
            problem = "is a file" if (root / folder).exists() else "does not exist"
            return mistake(f"the folder {shown_path(os.fsencode(folder))} {problem}; path must be a folder")
        try:
            names = await self._listed(root, folder, pattern)
            if names is None:
                names = await self._names(root / folder, pattern)
        except ProcessFailed as error:
            return fault(str(error))
        except ProcessTimeout as error:
            return fault(str(error), timed_out=True)
        except _BadGlob as error:
            return mistake(f"{error} (glob)")
        prefix = b"" if folder == "." else os.fsencode(folder) + b"/"
        paths = sorted(path for name in names if guard.contains(os.fsdecode(path := prefix + name)))
        return self._outcome([shown_path(p) for p in paths], pattern, _is_folder(root / folder / pattern))

    def _outcome(self, paths: list[str], pattern: str, is_folder: bool) -> Outcome:
        limits = self._limits
        if limits.exclude_tests:
            paths = [p for p in paths if not is_test_path(p)]
        if not paths:
            hint = f"; it is a folder: {pattern.rstrip('/')}/** lists its files" if is_folder else ""
            tests = ", test files left out" if limits.exclude_tests else ""
            return Outcome(
                ToolStatus.OK, shown_line(f"[no file matches {pattern}{tests}{hint}]", limits.max_chars - 20)
            )

        def header(shown: int) -> str:
            return "" if shown == len(paths) else f"[first {shown} of {len(paths)} files]"

        text, shown = fit(paths[: limits.max_paths], limits.max_chars, header)
        files = tuple(FileMatches(p, 1) for p in paths[:shown])
        return Outcome(ToolStatus.OK, text, files, truncated=shown < len(paths), files_found=len(paths))

    async def _listed(self, root: Path, folder: str, pattern: str) -> list[bytes] | None:
        if not self._programs.has_ripgrep or plain_glob(pattern) is None:
            return None
        loop = asyncio.get_running_loop()
        try:
            listing = loop.run_in_executor(self._lister, self._listing.names, root, folder, pattern)
            return await asyncio.wait_for(listing, self._limits.glob_timeout)
        except TimeoutError:
            raise ProcessTimeout(self._limits.glob_timeout, starved=True) from None

    async def _names(self, folder: Path, pattern: str) -> list[bytes]:
        if not self._programs.has_ripgrep:
            walking = asyncio.get_running_loop().run_in_executor(self._threads, _walk, folder, pattern)
            try:
                return await asyncio.wait_for(walking, self._limits.glob_timeout)
            except TimeoutError:
                raise ProcessTimeout(self._limits.glob_timeout, starved=True) from None
        chunks: list[bytes] = []
        size = 0

        def take(chunk: bytes) -> bool:
            nonlocal size
            size += len(chunk)
            chunks.append(chunk)
            return size <= _MAX_OUTPUT

        end = await self._programs.runner.run(self._programs.files(pattern), folder, self._limits.glob_timeout, take)
        if end.stopped:
            raise ProcessFailed("the tree has too many files to be listed")
        if end.code == 2 and (reason := short_reason(end.stderr)):
            raise _BadGlob(reason)
        return [name.removeprefix(b"./") for name in b"".join(chunks).split(b"\0") if name]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a glob is longer than any name may be
        return False


class _BadGlob(Exception):
    pass


def _from_root(guard: Guard, pattern: str) -> str:
    """`/repo/src/*.py` and `/src/*.py` as `src/*.py`: the part before the first glob character is a path."""
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts) if any(c in part for c in "*?[{")), len(parts) - 1)
    folder = guard.resolve("/".join(parts[:fixed]) or "/")
    rest = "/".join(parts[fixed:])
    # The leading slash keeps `/*.py` to the files at the root.
    return f"/{rest}" if folder == "." else f"{folder}/{rest}"


def _walk(folder: Path, pattern: str) -> list[bytes]:
    names = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            full = Path(where, name)
            path = str(full.relative_to(folder))
            hidden = name.startswith(".") and not pattern.startswith(".")
            if not hidden and matches_glob(path, pattern) and full.is_file() and not full.is_symlink():
                names.append(os.fsencode(path))
    return names
