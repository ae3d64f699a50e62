"""The files of a tree, which does not change, listed once: a model guesses names by the dozen.

Answers are those of ripgrep with `--files --glob`; only globs about which there can be no two opinions are answered.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path

# Lists that are kept, names that one may have (a larger tree is ripgrep's), and names of all lists (of 100 bytes each).
_MOST_TREES = 64
_MOST_NAMES = 200_000
_MOST_KEPT = 1_000_000
_PLAIN = re.compile(r"[A-Za-z0-9_.\-*]+(?:/[A-Za-z0-9_.\-*]+)*")
# More stars than this are left to ripgrep; what they cost grows with the length of a path.
_MOST_STARS = 4


class Listing:
    """Lists of files by tree. Safe to use from several threads."""

    def __init__(self) -> None:
        self._trees: OrderedDict[tuple[str, int, int], list[bytes] | None] = OrderedDict()
        self._guard = threading.Lock()

    def names(self, root: Path, folder: str, glob: str) -> list[bytes] | None:
        """The files below a folder that match, relative to it, in no order; None when ripgrep has to be asked.

        Args:
            folder: relative to it; "." for itself.
        """
        pattern = plain_glob(glob)
        if pattern is None or (names := self._listed(root)) is None:
            return None
        if folder != ".":
            prefix = os.fsencode(folder) + b"/"
            names = [name[len(prefix) :] for name in names if name.startswith(prefix)]
        matches = pattern.fullmatch
        return [name for name in names if matches(name) and _is_to_be_seen(name, pattern)]

    def _listed(self, root: Path) -> list[bytes] | None:
        status = root.stat()
        key = (
            os.fspath(root),
            status.st_ino,
            status.st_mtime_ns,
        )  # a tree that was removed and made again is another one
        with self._guard:  # others who ask about this tree wait for it anyway
            if key in self._trees:
                self._trees.move_to_end(key)
                return self._trees[key]
            try:
                names = _files(os.fsencode(root))
            except OSError:
                return None  # perhaps for this moment only: no file handle is left, or the tree is being made anew
            self._trees[key] = names
            while len(self._trees) > _MOST_TREES or self._kept() > _MOST_KEPT:
                self._trees.popitem(last=False)
            return names

    def _kept(self) -> int:
        return sum(len(names or ()) for names in self._trees.values())


@lru_cache(maxsize=256)
def plain_glob(glob: str) -> re.Pattern[bytes] | None:
    """The paths that a glob matches, for globs of plain names, `*` within a name, and `**` for folders."""
    parts = glob.split("/")
    if not _PLAIN.fullmatch(glob) or any(part == "." or ("**" in part and part != "**") for part in parts):
        return None
    if glob.count("*") > 2 * parts.count("**") + _MOST_STARS or parts.count("**") > _MOST_STARS // 2:
        return None
    if parts[-1] == "**":
        return None
    if len(parts) == 1:
        parts = ["**", *parts]
    made = ["(?:.*/)?" if part == "**" else f"{_part(part)}/" for part in parts]
    return re.compile("".join(made).removesuffix("/").encode(), re.DOTALL)


def _part(glob: str) -> str:
    """A name. Behind each star but the last the first place that is right is as good as any other: atomic, since all of
    them together would be tried for minutes on a long name."""
    first, *others = map(re.escape, glob.split("*"))
    if not others:
        return first
    return first + "".join(f"(?>[^/]*?{middle})" for middle in others[:-1]) + "[^/]*" + others[-1]


def _is_to_be_seen(name: bytes, pattern: re.Pattern[bytes]) -> bool:
    """A hidden file, or one in a hidden folder, only where the glob is about what is hidden itself."""
    if not name.startswith(b".") and b"/." not in name:
        return True
    parts = name.split(b"/")
    hidden = [n for n, part in enumerate(parts, 1) if part.startswith(b".")]
    return all(pattern.fullmatch(b"/".join(parts[:n])) for n in hidden)


def _files(root: bytes) -> list[bytes] | None:
    """Regular files, relative to the root; links are not followed. None when there are too many.

    Raises:
        OSError: a folder could not be listed, for another reason than that it may not.
    """
    found: list[bytes] = []
    todo = [b""]
    while todo:
        prefix = todo.pop()
        try:
            with os.scandir(root + b"/" + prefix) as entries:
                for entry in entries:
                    if entry.name == b".git":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(prefix + entry.name + b"/")
                    elif entry.is_file(follow_symlinks=False):
                        found.append(prefix + entry.name)
        except PermissionError:
            continue  # as ripgrep does with what it may not read
        if len(found) > _MOST_NAMES:
            return None
    return found
