"""Which files of a tree are ranked, and whether they have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegrep.errors import RepositoryError
from codegrep.index.tree import walk
from codegrep.issues.paths import is_test_path


@dataclass(frozen=True)
class FileState:
    """A file as the file system describes it; equal states mean equal content."""

    path: str
    size: int
    modified_ns: int
    inode: int


def ranked_files(tree: Path, *, include_tests: bool, suffixes: Sequence[str] = (".py",)) -> tuple[FileState, ...]:
    """List the regular files in the order of their paths. Links are left out: they repeat a file or lead out of it.

    Args:
        tree: the folder.
        include_tests: test files too.
        suffixes: of the names.

    Raises:
        RepositoryError: there is no such folder.
    """
    if not tree.is_dir():
        raise RepositoryError(f"there is no folder {tree}", "Prepare the repositories again")
    found = []
    for path, entry in walk(tree):
        if path.endswith(tuple(suffixes)) and (include_tests or not is_test_path(path)):
            status = entry.stat(follow_symlinks=False)
            found.append(FileState(path, status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(sorted(found, key=lambda state: state.path))
