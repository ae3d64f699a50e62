"""Whether a tree is as git left it, by what the file system says of every name in it."""

from __future__ import annotations

import hashlib
import os
from array import array
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TreeState:
    """A tree at one moment.

    Attributes:
        digest: of path, kind, size, time and inode of everything in the tree. Links to a file, which change only its
            count of links, leave it the same.
        folders: when names came into each folder or went, nanoseconds since the epoch, by absolute path.
    """

    digest: str
    folders: dict[str, int]

    def same_names(self) -> bool:
        """Whether no name has come, gone or been replaced since: a tenth of the cost of a new state."""
        try:
            return all(os.lstat(folder).st_mtime_ns == time for folder, time in self.folders.items())
        except OSError:
            return False


def tree_state(root: Path) -> TreeState:
    """Return the state of a tree, 10 µs a file.

    Raises:
        OSError: a folder cannot be read, or somebody is removing it.
    """
    folders = {os.fspath(root): root.stat().st_mtime_ns}
    names: list[str] = []
    numbers = array("Q", folders.values())
    for folder in (todo := list(folders)):
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                status = entry.stat(follow_symlinks=False)
                names.append(entry.path)
                numbers.extend((status.st_mode, status.st_mtime_ns, status.st_ino))
                if entry.is_dir(follow_symlinks=False):
                    folders[entry.path] = status.st_mtime_ns
                    todo.append(entry.path)
                else:
                    numbers.append(status.st_size)
    digest = hashlib.blake2b(os.fsencode("\0".join(names)), digest_size=16)
    digest.update(numbers)
    return TreeState(digest.hexdigest(), folders)
