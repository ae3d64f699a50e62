"""glob(pattern, path): names of files."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codegrep.config import ToolsConfig
from codegrep.issues.paths import is_test_path
from codegrep.protocol.calls import FileMatches, ToolStatus
from codegrep.sandbox.guard import Guard, PathRefused
from codegrep.sandbox.tools.arguments import check_arguments
from codegrep.sandbox.tools.formatting import fit, shown_line, shown_path
from codegrep.sandbox.tools.pathglob import BadGlob, compiled
from codegrep.sandbox.tools.tool import Argument, ArgumentError, Outcome, fault, mistake
from codegrep.sandbox.tree_state import TreeState

# Names of all lists that are kept, of about 100 bytes each.
_MOST_NAMES = 1_000_000


class Glob:
    """Lists files by glob, sorted by path, by the rules of pathglob. Folders and links are not listed.

    The files of a tree are listed once, until a name comes or goes: a model guesses names by the dozen.
    """

    name = "glob"
    description = "List files whose path matches a glob such as src/**/*.py; *.py matches at any depth."

    def __init__(self, limits: ToolsConfig) -> None:
        self._limits = limits
        self._trees: OrderedDict[Path, _Listing] = OrderedDict()
        # One at a time: who asks about a tree that is being listed waits for it anyway.
        self._lister = ThreadPoolExecutor(1, thread_name_prefix="listing")
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
        try:
            compiled(pattern)
        except BadGlob as error:
            raise ArgumentError(f"argument 'pattern' is no glob: {error}") from None
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
        listing = asyncio.get_running_loop().run_in_executor(self._lister, self._matching, root, folder, pattern)
        try:
            names = await asyncio.wait_for(listing, self._limits.glob_timeout)
        except TimeoutError:
            return fault(f"timed out after {self._limits.glob_timeout:g}s", timed_out=True)
        except OSError as error:
            return fault(f"the repository's files cannot be listed ({error.strerror})")
        paths = sorted((name for name in names if guard.contains(name)), key=os.fsencode)
        return self._outcome([shown_path(os.fsencode(p)) for p in paths], pattern, _is_folder(root / folder / pattern))

    def _outcome(self, paths: list[str], pattern: str, is_folder: bool) -> Outcome:
        limits = self._limits
        if limits.exclude_tests:
            paths = [p for p in paths if not is_test_path(p)]
        if not paths:
            hint = f"; it is a folder: {pattern.rstrip('/')}/** lists its files" if is_folder else ""
            tests = ", test files left out" if limits.exclude_tests else ""
            return Outcome(ToolStatus.OK, shown_line(f"[no file matches {pattern}{tests}{hint}]", limits.max_chars))

        def header(shown: int) -> str:
            return "" if shown == len(paths) else f"[first {shown} of {len(paths)} files]"

        text, shown = fit(paths[: limits.max_paths], limits.max_chars, header)
        files = tuple(FileMatches(p, 1) for p in paths[:shown])
        return Outcome(ToolStatus.OK, text, files, truncated=shown < len(paths), files_found=len(paths))

    def _matching(self, root: Path, folder: str, pattern: str) -> list[str]:
        prefix = "" if folder == "." else folder + "/"
        matches = compiled(pattern).fullmatch
        return [name for name in self._names(root) if name.startswith(prefix) and matches(name, len(prefix))]

    def _names(self, root: Path) -> list[str]:
        listing = self._trees.pop(root, None)
        if listing is None or not TreeState("", listing.folders).same_names():
            listing = _listing(os.fspath(root))
        self._trees[root] = listing
        while sum(len(one.names) for one in self._trees.values()) > _MOST_NAMES:
            self._trees.popitem(last=False)
        return listing.names


@dataclass(frozen=True)
class _Listing:
    """Regular files but git's own, relative to the root. folders: as in TreeState."""

    names: list[str]
    folders: dict[str, int]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a glob is longer than any name may be
        return False


def _from_root(guard: Guard, pattern: str) -> str:
    """`/repo/src/*.py` and `/src/*.py` as `src/*.py`: the part before the first glob character is a path."""
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts) if any(c in part for c in "*?[{")), len(parts) - 1)
    folder = guard.resolve("/".join(parts[:fixed]) or "/")
    rest = "/".join(parts[fixed:])
    # The leading slash keeps `/*.py` to the files at the root.
    return f"/{rest}" if folder == "." else f"{folder}/{rest}"


def _listing(root: str) -> _Listing:
    """List a tree. Links are not followed.

    Raises:
        OSError: a folder could not be listed, for another reason than that it may not.
    """
    names: list[str] = []
    folders: dict[str, int] = {}
    todo = [""]
    while todo:
        prefix = todo.pop()
        folder = f"{root}/{prefix}"
        try:
            folders[folder] = os.lstat(folder).st_mtime_ns
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name == ".git":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(f"{prefix}{entry.name}/")
                    elif entry.is_file(follow_symlinks=False):
                        names.append(prefix + entry.name)
        except PermissionError:
            continue  # as ripgrep does with what it may not read
    return _Listing(names, folders)
