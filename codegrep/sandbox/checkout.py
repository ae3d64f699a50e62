"""How the files of a commit come into its worktree.

The first tree of a repository is git's own checkout. A later one takes what is the same from a tree that is there
already, as hard links: less processor time than unpacking, hardly any disk, and one copy in the page cache for ripgrep
to read. This is safe since nobody writes into a tree: the tools only read, git replaces files instead of overwriting
them, and what others change in a tree is noticed by its digest.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codegrep.errors import InfrastructureError
from codegrep.issues.git import GitError, Limits, given, open_repository
from codegrep.sandbox.locks import FileLock
from codegrep.sandbox.repositories import BareClone

# Checkouts on a disk that writes back collapse when many run at once; two keep it busy.
_PARALLEL = 2
_TIMEOUT = 600.0  # seconds for each step
# With a smaller share of files in common, git's own checkout is as fast.
_WORTH_LINKING = 0.1
_BLOCK = 4096
_TO_HEAD = ("--quiet", "--hard", "--no-recurse-submodules")
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Donor:
    """A whole tree of the same repository that stays while it is used."""

    path: Path
    commit: str


@dataclass(frozen=True)
class Checkouts:
    """Makes trees under one root."""

    root: Path

    def register(self, clone: BareClone, commit: str, tree: Path, lock: FileLock) -> None:
        """Phase one, `git worktree add` without files, under the clone's lock.

        Concurrent adds on one clone fail, because git lists all worktrees while another one is half written.

        Raises:
            GitError: git failed.
        """
        with (
            FileLock(clone.lock_path, timeout=_TIMEOUT) as bare_lock,
            open_repository(clone.path, _limits(lock, bare_lock)) as repo,
        ):
            repo.git.worktree("add", "--quiet", "--no-checkout", "--detach", "--force", str(tree), commit)

    def fill(self, clone: BareClone, commit: str, tree: Path, lock: FileLock, donor: Donor | None) -> int:
        """Phase two, the files. Gives back how many of them are links to the donor's.

        Raises:
            GitError: git failed. OSError: the disk's fault.
        """
        with _Place(self.root / ".locks") as place:
            plan = self._plan(clone, commit, donor) if donor is not None else None
            with open_repository(tree, _limits(lock, place)) as repo:
                if donor is None or plan is None:
                    repo.git.reset(*_TO_HEAD)
                    return 0
                same, other = plan
                repo.git.read_tree("HEAD")
                left = _link(donor.path, tree, same)
                if other or left:
                    paths = "".join(f"{path}\0" for path in [*other, *left])
                    with given(os.fsencode(paths)) as stdin:
                        repo.git.checkout_index("-z", "--stdin", quiet=True, force=True, istream=stdin)
                return len(same) - len(left)

    def restore(self, tree: Path, lock: FileLock) -> None:
        """Compare the contents of all files with the commit, writes those anew that differ, removes what is not its.

        Links stay links.

        Raises:
            GitError: git failed, or the tree belongs to no clone any more.
        """
        with (
            _Place(self.root / ".locks") as place,
            open_repository(tree, _limits(lock, place)) as repo,
        ):
            # git has not seen the linked files yet and would write all of them anew. A refresh reads them and notes
            # which are right; it complains about the others, which are reset then.
            with suppress(GitError):
                repo.git.update_index("-q", "--really-refresh")
            repo.git.reset(*_TO_HEAD)
            repo.git.clean("-ffdxq")

    def _plan(self, clone: BareClone, commit: str, donor: Donor) -> tuple[list[str], list[str]] | None:
        """Paths to be linked and paths to be written; None when too few are the same.

        `git ls-tree` lists a tree in a quarter of the time that `git.Tree.traverse` takes.
        """
        with open_repository(clone.path, Limits(_TIMEOUT)) as repo:
            differing = repo.git.diff_tree("-r", "-z", "--no-renames", "--name-only", donor.commit, commit)
            listed = repo.git.ls_tree("-r", "-z", "--full-tree", commit)
        changed = set(differing.split("\0"))
        same: list[str] = []
        other: list[str] = []
        for line in listed.split("\0"):
            described, _, path = line.partition("\t")
            if path:
                (same if described.startswith("100") and path not in changed else other).append(path)
        return (same, other) if len(same) > _WORTH_LINKING * (len(same) + len(other)) else None


def _limits(*locks: FileLock) -> Limits:
    return Limits(_TIMEOUT, keep_open=tuple(lock.descriptor for lock in locks))


def _link(donor: Path, tree: Path, paths: Sequence[str]) -> list[str]:
    """Links `paths` from one tree into another; gives back those that could not be linked."""
    left: list[str] = []
    made = {""}
    source, target = os.fspath(donor), os.fspath(tree)
    for path in paths:
        folder = path.rpartition("/")[0]
        if folder not in made:
            Path(target, folder).mkdir(parents=True, exist_ok=True)
            made.add(folder)
        try:
            os.link(f"{source}/{path}", f"{target}/{path}", follow_symlinks=False)
        except OSError as error:
            if error.errno in _FULL:
                raise
            left.append(path)  # too many links to one file, a file system without them, a file deleted by hand
    return left


def disk_bytes(tree: Path) -> int:
    """Disk that a tree takes; a file with several links counts in parts, so that all trees together count it once."""
    total = 0.0
    for folder, _, names in os.walk(tree):
        for name in names:
            with suppress(OSError):
                status = os.lstat(f"{folder}/{name}")
                # By size, not by blocks: some file systems allot those later.
                total += -(-status.st_size // _BLOCK) * _BLOCK / status.st_nlink
    return round(total)


class _Place:
    """One of a few places for checkouts, shared by all processes of a root."""

    def __init__(self, folder: Path) -> None:
        self._locks = [FileLock(folder / f"@checkout{i}.lock") for i in range(_PARALLEL)]
        self._held: FileLock | None = None

    def __enter__(self) -> FileLock:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            for lock in self._locks:
                if lock.try_acquire():
                    self._held = lock
                    return lock
            if time.monotonic() > deadline:
                raise InfrastructureError(f"no place for a checkout became free within {_TIMEOUT:g} s")
            time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.release()
