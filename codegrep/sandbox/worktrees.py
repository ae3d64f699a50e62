"""One worktree per (repository, commit) on a node, leased and counted between processes (CodeGrep 3.3).

How files come into a tree is in checkout.py; what a root may take, and who has to go, in budget.py.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codegrep.errors import DiskError, InfrastructureError
from codegrep.issues.git import GitError
from codegrep.sandbox.budget import Budget
from codegrep.sandbox.checkout import Checkouts, Donor
from codegrep.sandbox.lease_cache import Held, Lingering
from codegrep.sandbox.lease_registry import Entry, Ledger
from codegrep.sandbox.locks import FileLock
from codegrep.sandbox.repositories import BareClone, Repositories, folder_name, require_full_hash
from codegrep.sandbox.tree_state import TreeState, tree_state
from codegrep.sandbox.worktree_metadata import registration_of, unregister

_log = logging.getLogger(__name__)


@dataclass
class Lease:
    """A worktree that stays as it is until `release` (or the end of the `with` block, or of the process).

    Attributes:
        path: root of the tree, absolute and real.
        bare: the clone that it belongs to.
        digest: of the tree as it was found, another one for every other tree and every change.
    """

    repo: str
    commit: str
    path: Path
    bare: Path
    digest: str
    is_unchanged: Callable[[], bool]
    _end: Callable[[], None] | None

    def release(self) -> None:
        """End the lease; a second call does nothing."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass
class WorktreeCounts:
    """What was done by this object.

    Attributes:
        linked: files that were linked instead of written.
    """

    leases: int = 0
    adds: int = 0
    linked: int = 0
    removals: int = 0
    repairs: int = 0


class Worktrees:
    """Leases of worktrees under one root; any number of threads and processes may share the root.

    Adds go in two phases: `git worktree add --no-checkout --detach` under a lock on the bare clone (concurrent adds on
    one clone fail, because git lists all worktrees while another one is half written), then the checkout, outside that
    lock.

    Args:
        root: folder of the trees.
        repositories: where clones come from.
        min_free_gib, max_worktrees, max_disk_gib: see Budget.
        linger: seconds for which a lease that was released is kept for the next one, which then costs no look at the
            disk. The budget of this object takes such a tree all the same, another process's once they have passed.
    """

    def __init__(
        self,
        root: Path,
        repositories: Repositories,
        min_free_gib: float = 0.0,
        max_worktrees: int = 0,
        max_disk_gib: float = 0.0,
        linger: float = 0.0,
    ) -> None:
        root = root.expanduser().absolute()
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.counts = WorktreeCounts()
        self._repositories = repositories
        self._ledger = Ledger(self.root)
        self._checkouts = Checkouts(self.root)
        self._budget = Budget(self._ledger, min_free_gib, max_worktrees, max_disk_gib)
        self._lingering = Lingering(self._ledger, linger)
        # When the commit of each entry was made, of this repository's entries only; -1 where nobody can borrow.
        self._committed: dict[str, int] = {}

    def lease(self, repo: str, commit: str) -> Lease:
        """Return a lease on the tree of `commit`, which is added first if it is not there (then it may take minutes).

        Raises:
            RepositoryError: the commit cannot be had. DiskError: too little disk. InfrastructureError: git failed.
        """
        require_full_hash(repo, commit)
        try:
            return self.lease_again(repo, commit) or self._lease(repo, commit)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskError(f"the disk of {self.root} is full", "Free some disk.") from error
            raise InfrastructureError(f"no worktree of {repo} at {commit[:12]} ({error})") from error

    def _lease(self, repo: str, commit: str) -> Lease:
        for name in _names(repo, commit):
            with self._ledger.lock(name) as lock:
                entry = self._ledger.entry(name)
                if entry is not None and (entry.repo, entry.commit) != (repo, commit):
                    continue  # the first eight digits are shared with another commit; the next name is longer
                if (again := self.lease_again(repo, commit)) is not None:
                    return again  # of somebody who waited for the lock too
                state = self._trusted(entry, lock) if entry is not None else None
                if entry is None or state is None:
                    entry, state = self._add(repo, commit, name, lock)
                return self._lent(self._lingering.begin(entry, state))
        raise AssertionError("the last name holds the whole commit")

    def lease_again(self, repo: str, commit: str) -> Lease | None:
        """Return a lease that stands on one released a moment ago, or None; no look at the disk."""
        held = self._lingering.again(repo, commit)
        return self._lent(held) if held is not None else None

    def repair(self) -> list[str]:
        """Take down or mend what dead processes left behind; to be called at start.

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
                if (line := self._mend(name)) is not None:
                    done.append(line)
            finally:
                lock.release()
        self._ledger.bury_owners()
        for old in (self.root / ".trash").iterdir():
            shutil.rmtree(old, ignore_errors=True)
        self.counts.repairs += len(done)
        return done

    def close(self) -> None:
        """End all leases of this object."""
        self._lingering.close()
        self._ledger.close()

    def _lent(self, held: Held) -> Lease:
        self.counts.leases += 1
        entry, keeper = held.entry, self._lingering
        tree, bare = self._ledger.tree(entry.name), Path(entry.bare)
        look, end = partial(keeper.is_unchanged, held), partial(keeper.end, held)
        return Lease(entry.repo, entry.commit, tree, bare, held.state.digest, look, end)

    def _trusted(self, entry: Entry, lock: FileLock) -> TreeState | None:
        """Return the state of a tree that is as git left it, mended if need be; None where it has to be made anew.

        Raises:
            InfrastructureError: it was changed, and somebody uses it.
        """
        if not self._is_whole(entry.name):
            return None
        tree = self._ledger.tree(entry.name)
        state = tree_state(tree)
        if state.digest == self._ledger.digest(entry.name):
            return state
        if self._ledger.leases(entry.name):
            raise InfrastructureError(
                f"{tree} was changed while it is in use", "Keep other programs out; it is mended once nobody uses it."
            )
        _log.warning("%s was changed since it was checked out and is put right", tree)
        restored = self._restored(entry.name, lock)
        self.counts.repairs += restored is not None
        return restored

    def _restored(self, name: str, lock: FileLock) -> TreeState | None:
        """Put a tree right; None where git cannot."""
        tree = self._ledger.tree(name)
        if registration_of(tree) is None:
            return None
        try:
            self._checkouts.restore(tree, lock)
        except GitError:
            return None
        return self._complete(name)

    def _complete(self, name: str) -> TreeState:
        state = tree_state(self._ledger.tree(name))
        self._ledger.complete(name, state.digest)
        return state

    def _is_whole(self, name: str) -> bool:
        return self._ledger.is_complete(name) and (self._ledger.tree(name) / ".git").exists()

    def _add(self, repo: str, commit: str, name: str, lock: FileLock) -> tuple[Entry, TreeState]:
        clone = self._repositories.open(repo)
        made = self._repositories.fetch_commit(clone, commit)
        self._budget.make_room(name, self._remove_unleased)
        self._budget.require_disk(repo, commit)
        if (old := self._ledger.entry(name)) is not None:
            self._take_down(old)
        entry = Entry(name, repo, commit, str(clone.path), made)
        tree = self._ledger.tree(name)
        if tree.exists() or tree.is_symlink():
            raise InfrastructureError(f"{tree} is in the way and was not made here", "Move it away.")
        self._ledger.begin(entry)
        try:
            self._checkouts.register(clone, commit, tree, lock)
            with self._donor(entry) as donor:
                self.counts.linked += self._checkouts.fill(clone, commit, tree, lock, donor)
            self._budget.note(name)
            state = self._complete(name)
        except BaseException as error:
            self._take_down(entry)
            if isinstance(error, GitError):
                raise InfrastructureError(f"the tree of {repo} at {commit[:12]} cannot be made ({error})") from error
            raise
        self.counts.adds += 1
        return entry, state

    @contextmanager
    def _donor(self, entry: Entry) -> Iterator[Donor | None]:
        """Return the tree of the same clone whose commit is nearest in time, kept from removal while it is used."""
        donor = self._nearest(entry)
        lease = self._hold(donor) if donor is not None else None
        try:
            yield Donor(self._ledger.tree(donor.name), donor.commit) if donor is not None and lease else None
        finally:
            if lease is not None:
                lease.unlink(missing_ok=True)

    def _nearest(self, entry: Entry) -> Entry | None:
        prefix = f"{folder_name(entry.repo)}_"
        there = [name for name in self._ledger.names() if name.startswith(prefix) and name != entry.name]
        for name in there:
            if name not in self._committed:
                other = self._ledger.entry(name)
                self._committed[name] = other.committed if other is not None and other.bare == entry.bare else -1
        near = sorted((abs(self._committed[n] - entry.committed), n) for n in there if self._committed[n] >= 0)
        return next((self._ledger.entry(n) for _, n in near if self._is_whole(n)), None)

    def _hold(self, entry: Entry) -> Path | None:
        """Return a lease file on an entry that is as git left it and that nobody is changing, or None."""
        lock = self._ledger.lock(entry.name)
        if not lock.try_acquire():
            return None
        try:
            if self._ledger.entry(entry.name) != entry or not self._is_whole(entry.name):
                return None
            if tree_state(self._ledger.tree(entry.name)).digest != self._ledger.digest(entry.name):
                return None
            return self._ledger.add_lease(entry.name)
        finally:
            lock.release()

    def _remove_unleased(self, name: str) -> bool:
        lock = self._ledger.lock(name)
        if not lock.try_acquire():
            return False
        try:
            entry = self._ledger.entry(name)
            self._lingering.forget(name)
            if entry is None or self._ledger.leases(name) > 0:
                return False
            self._take_down(entry)
            self.counts.removals += 1
            return True
        finally:
            lock.release()

    def _take_down(self, entry: Entry) -> None:
        """Remove tree, registration and entry, in an order that can be cut anywhere. The entry's lock is held."""
        self._ledger.incomplete(entry.name)
        tree = self._ledger.tree(entry.name)
        trash = self._ledger.trash(tree)
        bare = Path(entry.bare)
        if bare.is_dir():
            with FileLock(BareClone(entry.repo, bare).lock_path):
                unregister(bare, tree)
        if tree.exists():
            tree.rename(trash)
        self._ledger.forget(entry.name)
        shutil.rmtree(trash, ignore_errors=True)

    def _mend(self, name: str) -> str | None:
        entry = self._ledger.entry(name)
        if entry is None:
            self._ledger.forget(name)
            return f"removed the unreadable entry {name}"
        if not self._is_whole(name):
            self._take_down(entry)
            return f"removed the unfinished tree {name}"
        self._ledger.leases(name)  # removes those of dead owners
        return None


def _names(repo: str, commit: str) -> list[str]:
    """Names to be tried in turn: `owner__repo_<8hex>`, longer ones only where two commits share their first digits."""
    return [f"{folder_name(repo)}_{commit[:digits]}" for digits in (8, 16, len(commit))]
