"""The path guard: what a model calls a path becomes a real place inside one tree, or is refused.

Two separate steps. `habitual` is lenient: models write `/repo/src/x.py` or `/workspace/owner__name__1.0/x` for
`src/x.py`. `Guard.resolve` is strict: the real path (every symlink followed, also in the middle) has to lie in the tree
and outside git's own files. Scoring of answers never goes through here.

Hard links cannot be told from ordinary files; git does not make them and nothing else writes into a tree.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Callable
from pathlib import Path

#: Longest path or glob that is looked at, characters.
MAX_PATH_CHARS = 1000
# Files of one folder whose kind is asked for one by one; from then on its links are listed at once.
_ASK_ONE_BY_ONE = 3

_FOLDERS_OF_AGENTS = re.compile(
    r"/(?:repo|repository|testbed|app|code|src_root|project|root/repo|home/user/repo)(?=/|$)"
)
_WORKSPACE = re.compile(r"/workspace(?:/[^/]*__[^/]*)?(?=/|$)")
# Characters that some file systems leave out when they compare names; `.g<ZWNJ>it` must not pass for another name.
_IGNORED = dict.fromkeys(
    [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), *range(0x206A, 0x2070), 0xFEFF, 0x00AD]
)


class PathRefused(Exception):
    """The path is not one that a tool may look at. `str(error)` is a sentence that the model is shown."""


def habitual(path: str, exists: Callable[[str], bool]) -> str:
    """`path` without the prefixes that models habitually write, as a path relative to the tree's root.

    Args:
        path: as the model wrote it.
        exists: whether a relative path is there. A prefix goes only where the rest is there or the path is absolute, so
            a repository's own folder `repo/` keeps its name.
    """
    text = path.strip().strip("\"'`").strip()
    if "\\" in text and "/" not in text:
        text = text.replace("\\", "/")
    text = re.sub(r"/{2,}", "/", text)
    while text.startswith("./"):
        text = text[2:]
    if text in ("", ".", "/"):
        return "."
    if not text.startswith("/"):
        if (
            not exists(text)
            and (m := re.match(r"(?:repo|testbed|workspace/[^/]*__[^/]*)/", text))
            and exists(text[m.end() :])
        ):
            return text[m.end() :]
        return text
    for prefix in (_WORKSPACE, _FOLDERS_OF_AGENTS):
        if (m := prefix.match(text)) is not None:
            return text[m.end() :].strip("/") or "."
    return text


class Guard:
    """Resolves paths of one tree.

    Args:
        root: the tree's root; its real path is taken once.
    """

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self._folders: dict[str, bool] = {}
        self._asked: dict[str, int] = {}
        self._links: dict[str, set[str]] = {}

    def resolve(self, path: str) -> str:
        """Return the real place of a path that a model wrote, relative to the root, "." for the root itself.

        The result names a place inside the tree, with no symlink left in it; whether something is there is the caller's
        question (a missing file resolves too).

        Raises:
            PathRefused: outside of the tree, git's own, or no path at all.
        """
        check_text(path)
        relative = self._below_root(path.strip()) or habitual(path, self._exists)
        if relative == ".":
            return "."
        if relative.startswith("/"):
            if not self._exists(relative.lstrip("/")):
                raise PathRefused(f"'{_short(path)}' is outside of the repository; use paths relative to its root")
            relative = relative.lstrip("/")  # "/src/x.py", meant from the repository's root
        if relative.startswith("~"):
            raise PathRefused(f"'{_short(path)}' is outside of the repository; use paths relative to its root")
        if ".." in relative.split("/"):
            raise PathRefused(f"'{_short(path)}' contains '..'; use paths relative to the repository's root")
        _refuse_git(relative, path)
        try:
            real = os.path.realpath(f"{self.root}/{relative}")
            _refuse_long(real, path)
        except (OSError, ValueError) as error:
            raise PathRefused(f"'{_short(path)}' is no usable path") from error
        inside = self._below_root(real)
        if inside is None:
            raise PathRefused(f"'{_short(path)}' is a link to outside of the repository")
        _refuse_git(inside, path)
        return inside

    def contains(self, relative: str) -> bool:
        """Return whether a path that a tool put out really lies in the tree and is not git's own."""
        folder, _, name = relative.rpartition("/")
        if not self._folders.get(folder, False) and not self._is_folder_inside(folder):
            return False
        if name in ("", ".", "..") or _is_git(name):
            return False
        return not self._is_file_a_link(folder, name) or self._is_inside(relative)

    def _is_file_a_link(self, folder: str, name: str) -> bool:
        if (links := self._links.get(folder)) is not None:
            return name in links
        asked = self._asked[folder] = self._asked.get(folder, 0) + 1
        try:
            if asked <= _ASK_ONE_BY_ONE:
                return _is_link(f"{self.root}/{folder}/{name}")
            with os.scandir(f"{self.root}/{folder}") as entries:
                self._links[folder] = {entry.name for entry in entries if entry.is_symlink()}
            return name in self._links[folder]
        except (OSError, ValueError):
            return True

    def _is_folder_inside(self, folder: str) -> bool:
        """Asks about each folder once: it is inside when the folder that holds it is, and it is no link."""
        if folder not in self._folders:
            parent, _, name = folder.rpartition("/")
            plain = bool(name) and name not in (".", "..") and not _is_git(name) and self._is_folder_inside(parent)
            self._folders[folder] = (plain and not _is_link(f"{self.root}/{folder}")) or self._is_inside(folder)
        return self._folders[folder]

    def _is_inside(self, relative: str) -> bool:
        if any(_is_git(part) for part in relative.split("/")):
            return False
        inside = self._below_root(os.path.realpath(f"{self.root}/{relative}"))
        return inside is not None and not any(_is_git(part) for part in inside.split("/"))

    def _below_root(self, absolute: str) -> str | None:
        if absolute == self.root:
            return "."
        prefix = self.root.rstrip("/") + "/"
        return absolute[len(prefix) :] if absolute.startswith(prefix) else None

    def _exists(self, relative: str) -> bool:
        try:
            return os.path.lexists(f"{self.root}/{relative.lstrip('/')}")
        except (OSError, ValueError):
            return False


def check_text(path: str) -> None:
    """Refuses what can be no path: NUL bytes, unpaired surrogates, too long.

    Raises:
        PathRefused: with the reason.
    """
    if "\0" in path:
        raise PathRefused("the path contains a NUL byte")
    if len(path) > MAX_PATH_CHARS:
        raise PathRefused(f"the path has {len(path)} characters, at most {MAX_PATH_CHARS} are allowed")
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise PathRefused("the path is no valid Unicode text") from None


def _is_link(path: str) -> bool:
    """Return False only for what is surely no link; of everything else, look at the real path."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return True


def _is_git(name: str) -> bool:
    if name.isascii():
        if "git" not in name and "git" not in name.lower():
            return False
    else:
        name = unicodedata.normalize("NFKC", name.translate(_IGNORED))
    return name.casefold().rstrip(" .") in (".git", "git~1")


def _refuse_git(relative: str, path: str) -> None:
    if any(_is_git(part) for part in relative.split("/")):
        raise PathRefused(f"'{_short(path)}' belongs to git, not to the repository's files")


def _refuse_long(real: str, path: str) -> None:
    try:
        os.lstat(real)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise PathRefused(f"'{_short(path)}' does not exist; no file has so long a name") from error


def _short(path: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in path)[:200]
