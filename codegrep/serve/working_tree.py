"""A folder as it is now, indexed: what changed since the last use is found by stat, and only that is read again."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from codegrep.conf_folder import cache_folder
from codegrep.errors import RepositoryError
from codegrep.index.static import load_static
from codegrep.index.store import BlobStore
from codegrep.index.tree import SKIPPED_FOLDERS, TreeIndex, is_indexed, source_file
from codegrep.issues.git import git_environment
from codegrep.issues.paths import is_test_path

_GIT_SECONDS = 120.0
_BATCH = 1_000  # files that are read before progress is told
# Two writes within one tick of the file system's clock look like one: what is younger is looked at again.
_TICK_NS = 100_000_000
Stamp = tuple[int, int, int]
Progress = Callable[[int, int], None]
"""Told how many files of how many are read."""


class WorkingTree:
    """Text files of a folder, uncommitted ones included, without what git ignores; safe for several threads.

    Args:
        root: absolute folder: a git repository, a part of one, or any folder.
        tests: index test files too.

    Raises:
        RepositoryError: there is no such folder, or it cannot be read.
    """

    def __init__(self, root: Path, tests: bool = False) -> None:
        check_folder(root)
        self.root = root
        self._tests = tests
        self._lock = threading.Lock()
        self._store: BlobStore | None = None
        self._paths: list[str] = []
        self._watched: dict[str, Stamp | None] = {}  # folders, and the files that say what git ignores
        self._known: dict[str, tuple[Stamp | None, str]] = {}  # stamp and key of each file
        self._index: TreeIndex | None = None
        self._fresh_at = -1.0

    def index(self, progress: Progress = lambda done, total: None) -> TreeIndex:
        """Return the index of the tree as it was when this was called, or later.

        Raises:
            RepositoryError: the folder is gone, or cannot be read.
            DataError: the index cannot be read or written.
        """
        asked = time.monotonic()
        with self._lock:
            # A caller that waited for the lock shares what was found meanwhile.
            if self._index is None or self._fresh_at < asked:
                began = time.monotonic()
                changed = self._refresh(progress)
                if changed or self._index is None:
                    assert self._store is not None
                    keys = {path: key for path, (_, key) in self._known.items()}
                    self._store.keep(set(keys.values()))
                    self._index = TreeIndex(((path, self._store[key]) for path, key in keys.items()), load_static())
                self._fresh_at = began
            return self._index

    def _refresh(self, progress: Progress) -> bool:
        """Read what changed; whether anything did."""
        if self._store is None:
            self._store = BlobStore(index_folder(self.root), load_static())
        listed = not self._watched or any(
            seen is None or _stamp(f"{self.root}/{path}") != seen for path, seen in self._watched.items()
        )
        if listed:
            names, self._watched = listing(self.root)
            self._paths = [name for name in names if is_indexed(name) and (self._tests or not is_test_path(name))]
        before = self._known
        stamps = {path: _stamp(f"{self.root}/{path}") for path in self._paths}
        changed = [path for path, now in stamps.items() if path not in before or now is None or now != before[path][0]]
        gone = before.keys() - stamps.keys()
        if not changed and not gone:
            return False
        known = {path: before[path] for path in stamps if path in before}
        for first in range(0, len(changed), _BATCH):
            files = [source_file(self.root, path) for path in changed[first : first + _BATCH]]
            self._store.learn(
                {file.key: (file.path, file.read) for file in files if file.key not in self._store},
            )
            known |= {file.path: (stamps[file.path], file.key) for file in files}
            progress(first + len(files), len(changed))
        self._known = {path: known[path] for path in self._paths}
        return bool(gone) or any(path not in before or before[path][1] != known[path][1] for path in changed)


def index_folder(root: Path) -> Path:
    """Return the folder of the index of a folder."""
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return cache_folder() / "index" / f"{root.name}-{digest}"


def check_folder(root: Path) -> None:
    """Refuse what is no folder that can be read.

    Raises:
        RepositoryError: it is not.
    """
    if not root.is_dir():
        raise RepositoryError(f"there is no folder {root}", "Name one with --repo")
    if not os.access(root, os.R_OK | os.X_OK):
        raise RepositoryError(f"the folder {root} cannot be read", "Change its permissions, or run as its owner")


def listing(root: Path) -> tuple[list[str], dict[str, Stamp | None]]:
    """List the regular files below a folder, and stamps of what tells that the list is out of date.

    Without git, or outside a repository, nothing is ignored but SKIPPED_FOLDERS. Links are left out, to files and to
    folders.

    Returns:
        Paths in order; stamps of all folders, of .gitignore files and of git's own index and exclude file.
    """
    check_folder(root)
    names = _git_files(root, "--cached", "--others")
    ignored = _git_files(root, "--others", "--ignored", "--directory") if names is not None else None
    skipped = {name.rstrip("/") for name in ignored or [] if name.endswith("/")}
    watched = {".git/index": _stamp(root / ".git" / "index"), ".git/info/exclude": _stamp(root / ".git/info/exclude")}
    watched = {path: seen for path, seen in watched.items() if seen is not None}
    found: list[str] = []
    pending = [""]
    while pending:
        folder = pending.pop()
        seen = _stamp(root / folder)
        try:
            entries = list(os.scandir(root / folder))
        except OSError:
            continue  # gone or unreadable: nothing that a search could find
        if folder and any(entry.name == ".git" for entry in entries):
            continue  # another repository
        watched[folder] = seen
        for entry in entries:
            path = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_FOLDERS and path not in skipped:
                    pending.append(f"{path}/")
            elif entry.is_file(follow_symlinks=False):
                found.append(path)
                if entry.name == ".gitignore":
                    watched[path] = _stamp(root / path)
    if names is not None:
        found = list(set(found).intersection(names))
    return sorted(found), watched


def line_count(path: Path) -> int:
    """Return how many lines a file has; 0 where it is gone."""
    try:
        content = path.read_bytes()
    except OSError:
        return 0
    return content.count(b"\n") + bool(content and not content.endswith(b"\n"))


def _git_files(root: Path, *which: str) -> list[str] | None:
    """Paths that `git ls-files` lists; None where there is no repository or no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", *which, "--exclude-standard", "-z"],
            cwd=root,
            env=git_environment(),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RepositoryError(f"git cannot list the files of {root} ({error})") from error
    return None if listed.returncode else listed.stdout.decode("utf-8", "surrogateescape").split("\0")


def _stamp(path: Path | str) -> Stamp | None:
    """Return what changes with a file or folder; None where it is gone, or so young that a change might not be seen."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    young = time.time_ns() - found.st_ctime_ns < _TICK_NS
    return None if young or stat.S_ISLNK(found.st_mode) else (found.st_ino, found.st_size, found.st_ctime_ns)
