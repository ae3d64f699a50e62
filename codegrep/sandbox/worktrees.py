"""One worktree per (repository, commit) on a node, leased and counted between processes (SPEC 1.2, layer 2)."""

from __future__ import annotations

import errno
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from codegrep.errors import DiskError, InfrastructureError
from codegrep.sandbox.git import GitError, run_git
from codegrep.sandbox.ledger import Entry, Ledger
from codegrep.sandbox.locks import FileLock
from codegrep.sandbox.registrations import drop_stale_locks, unregister
from codegrep.sandbox.repositories import BareClone, Repositories, folder_name, require_full_hash

# Checkouts on a disk that writes back collapse when many run at once; two keep it busy.
_PARALLEL_CHECKOUTS = 2


@dataclass
class Lease:
    """A worktree that stays as it is until `release` (or the end of the `with` block, or of the process).

    Attributes:
        path: root of the tree, absolute and real.
    """

    repo: str
    commit: str
    path: Path
    _file: Path | None

    def release(self) -> None:
        """Ends the lease; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.unlink(missing_ok=True)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


@dataclass
class WorktreeCounts:
    """What was done by this object. seconds_adding: wall time of the adds, waiting for locks included."""

    leases: int = 0
    adds: int = 0
    removals: int = 0
    repairs: int = 0
    seconds_adding: float = 0.0


class Worktrees:
    """Leases of worktrees under one root; any number of threads and processes may share the root.

    Adds go in two phases: `git worktree add --no-checkout --detach` under a lock on the bare clone (concurrent adds on
    one clone fail, because git lists all worktrees while another one is half written), then the checkout, outside that
    lock.

    Args:
        root: folder of the trees.
        repositories: where clones come from.
        min_free_gib: DiskError instead of an add when less disk is free.
        max_worktrees: trees kept; beyond it the least recently used ones without a lease go. 0 means no limit. A soft
            limit: leased trees are never removed, and adds that run at the same time do not count each other.
        checkout_timeout: seconds.
    """

    def __init__(
        self,
        root: Path,
        repositories: Repositories,
        min_free_gib: float = 0.0,
        max_worktrees: int = 0,
        checkout_timeout: float = 600.0,
    ) -> None:
        root = root.expanduser().absolute()
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.counts = WorktreeCounts()
        self._repositories = repositories
        self._min_free = min_free_gib
        self._max = max_worktrees
        self._timeout = checkout_timeout
        self._ledger = Ledger(self.root)

    def lease(self, repo: str, commit: str) -> Lease:
        """A lease on the tree of `commit`, which is added first if it is not there (then it may take minutes).

        Raises:
            RepositoryError: the commit cannot be had. DiskError: too little disk. InfrastructureError: git failed.
        """
        require_full_hash(repo, commit)
        try:
            return self.lease_if_ready(repo, commit) or self._lease(repo, commit)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskError(f"the disk of {self.root} is full", "Free some disk.") from error
            raise InfrastructureError(f"no worktree of {repo} at {commit[:12]} ({error})") from error

    def _lease(self, repo: str, commit: str) -> Lease:
        began = time.monotonic()
        for name in _names(repo, commit):
            with self._ledger.lock(name) as lock:
                entry = self._ledger.entry(name)
                if entry is not None and (entry.repo, entry.commit) != (repo, commit):
                    continue  # the first eight digits are shared with another commit; the next name is longer
                if not self._is_whole(name):
                    self._add(repo, commit, name, lock)
                    self.counts.seconds_adding += time.monotonic() - began
                return self._leased(repo, commit, name)
        raise AssertionError("the last name holds the whole commit")

    def lease_if_ready(self, repo: str, commit: str) -> Lease | None:
        """A lease without any waiting, or None when the tree is not there yet or just being changed.

        No git process runs.
        """
        for name in _names(repo, commit):
            entry = self._ledger.entry(name)
            if entry is None:
                return None
            if (entry.repo, entry.commit) != (repo, commit):
                continue
            lock = self._ledger.lock(name)
            if not lock.try_acquire():
                return None
            try:
                # Read again: before the lock the entry may have been taken down and made for another commit.
                same = self._ledger.entry(name) == entry
                return self._leased(repo, commit, name) if same and self._is_whole(name) else None
            finally:
                lock.release()
        return None

    def repair(self) -> list[str]:
        """The janitor, to be run at start: what dead processes left behind is taken down or mended.

        Touches only what the ledger names. Entries that another process is changing at the moment are left to it.

        Returns:
            One line for everything done.
        """
        done: list[str] = []
        for name in self._ledger.names():
            lock = self._ledger.lock(name)
            if not lock.try_acquire():
                continue
            try:
                if (line := self._mend(name, lock)) is not None:
                    done.append(line)
            finally:
                lock.release()
        self._ledger.bury_owners()
        for old in (self.root / ".trash").iterdir():
            shutil.rmtree(old, ignore_errors=True)
        self.counts.repairs += len(done)
        return done

    def close(self) -> None:
        """Ends all leases of this object."""
        self._ledger.close()

    def _leased(self, repo: str, commit: str, name: str) -> Lease:
        file = self._ledger.add_lease(name)
        self._ledger.touch(name)
        self.counts.leases += 1
        return Lease(repo, commit, self._ledger.tree(name), file)

    def _is_whole(self, name: str) -> bool:
        return self._ledger.is_complete(name) and (self._ledger.tree(name) / ".git").exists()

    def _add(self, repo: str, commit: str, name: str, lock: FileLock) -> None:
        clone = self._repositories.open(repo)
        self._repositories.fetch_commit(clone, commit)
        self._make_room(keep=name)
        self._require_disk(repo, commit)
        if (old := self._ledger.entry(name)) is not None:
            self._take_down(old)
        entry = Entry(name, repo, commit, str(clone.path))
        tree = self._ledger.tree(name)
        if tree.exists() or tree.is_symlink():
            raise InfrastructureError(f"{tree} is in the way and was not made here", "Move it away.")
        self._ledger.begin(entry)
        try:
            self._register(clone, commit, tree, lock)
            self._check_out(tree, lock)
        except BaseException as error:
            self._take_down(entry)
            if isinstance(error, GitError):
                raise InfrastructureError(f"the tree of {repo} at {commit[:12]} cannot be made ({error})") from error
            raise
        self._ledger.complete(name)
        self.counts.adds += 1

    def _register(self, clone: BareClone, commit: str, tree: Path, lock: FileLock) -> None:
        with FileLock(clone.lock_path, timeout=self._timeout) as bare_lock:
            run_git(
                ["worktree", "add", "--quiet", "--no-checkout", "--detach", "--force", str(tree), commit],
                git_dir=clone.path,
                timeout=self._timeout,
                keep_open=[lock.descriptor, bare_lock.descriptor],
            )

    def _check_out(self, tree: Path, lock: FileLock) -> None:
        with _Slot(self.root / ".locks", _PARALLEL_CHECKOUTS, self._timeout) as slot:
            run_git(
                ["-c", "checkout.workers=1", "reset", "--quiet", "--hard", "--no-recurse-submodules"],
                cwd=tree,
                timeout=self._timeout,
                keep_open=[lock.descriptor, slot.descriptor],
            )

    def _make_room(self, keep: str) -> None:
        if self._max <= 0:
            return
        with FileLock(self.root / ".locks" / "@eviction.lock"):
            names = [n for n in self._ledger.names() if n != keep]
            surplus = len(names) + 1 - self._max
            for name in sorted(names, key=self._ledger.last_use):
                if surplus <= 0:
                    return
                surplus -= self._remove_unleased(name)

    def _remove_unleased(self, name: str) -> int:
        lock = self._ledger.lock(name)
        if not lock.try_acquire():
            return 0
        try:
            entry = self._ledger.entry(name)
            if entry is None or self._ledger.leases(name) > 0:
                return 0
            self._take_down(entry)
            self.counts.removals += 1
            return 1
        finally:
            lock.release()

    def _take_down(self, entry: Entry) -> None:
        """Removes tree, registration and entry, in an order that can be cut anywhere. The entry's lock is held."""
        self._ledger.incomplete(entry.name)
        tree = self._ledger.tree(entry.name)
        trash = self._ledger.trash(tree)
        bare = Path(entry.bare)
        if bare.is_dir():
            with FileLock(BareClone(entry.repo, bare).lock_path, timeout=self._timeout):
                unregister(bare, tree)
        if tree.exists():
            tree.rename(trash)
        self._ledger.forget(entry.name)
        shutil.rmtree(trash, ignore_errors=True)

    def _mend(self, name: str, lock: FileLock) -> str | None:
        leases = self._ledger.leases(name)
        entry = self._ledger.entry(name)
        if entry is None:
            self._ledger.forget(name)
            return f"removed the unreadable entry {name}"
        if not self._is_whole(name):
            self._take_down(entry)
            return f"removed the unfinished tree {name}"
        if leases:
            return None
        stale = drop_stale_locks(self._ledger.tree(name))
        if self._ledger.is_of_this_boot(name):
            return f"removed stale locks of {name}" if stale else None
        try:
            self._check_out(self._ledger.tree(name), lock)
        except GitError:
            self._take_down(entry)
            return f"removed the damaged tree {name}"
        self._ledger.complete(name)
        return f"checked {name} after a restart of the machine"

    def _require_disk(self, repo: str, commit: str) -> None:
        free = shutil.disk_usage(self.root).free / 2**30
        if free < self._min_free:
            raise DiskError(
                f"{free:.1f} GiB are free at {self.root}, less than sandbox.min_free_gib={self._min_free:g}; "
                f"the tree of {repo} at {commit[:12]} was not written",
                "Free some disk, or lower sandbox.max_worktrees.",
            )


class _Slot:
    """One of a few places for checkouts, shared by all processes of a root."""

    def __init__(self, folder: Path, slots: int, timeout: float) -> None:
        self._locks = [FileLock(folder / f"@checkout{i}.lock") for i in range(slots)]
        self._timeout = timeout
        self._held: FileLock | None = None

    def __enter__(self) -> FileLock:
        deadline = time.monotonic() + self._timeout
        while True:
            for lock in self._locks:
                if lock.try_acquire():
                    self._held = lock
                    return lock
            if time.monotonic() > deadline:
                raise InfrastructureError(f"no place for a checkout became free within {self._timeout:g} s")
            time.sleep(0.01)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.release()


def _names(repo: str, commit: str) -> list[str]:
    """Names to be tried in turn: `owner__repo_<8hex>`, longer ones only where two commits share their first digits."""
    return [f"{folder_name(repo)}_{commit[:digits]}" for digits in (8, 16, len(commit))]
