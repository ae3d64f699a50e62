"""The registration of one worktree in its bare clone, read and removed without running git.

`git worktree remove` and `prune` refuse or skip what a killed `git worktree add` leaves: a half-written registration
that is marked as locked ("initializing") and on which every later git command in the clone may fail.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path


def unregister(bare: Path, tree: Path) -> None:
    """Removes the registrations of `tree`, whole or half-written, and nothing else. The bare clone's lock is held."""
    # git names a registration after the tree's folder, with a number behind it when that name is taken. Under the lock
    # no add is going on, so one that names no tree is what a killed add of ours has left.
    ours = re.compile(re.escape(tree.name) + r"\d*")
    for registration, target in _registrations(bare):
        if not (target == os.fspath(tree / ".git") or (target is None and ours.fullmatch(registration.name))):
            continue
        shutil.rmtree(registration, ignore_errors=True)


def drop_stale_locks(bare: Path, tree: Path) -> bool:
    """Removes index.lock and HEAD.lock of a tree that nobody is changing; True when there were any."""
    found = False
    for registration, target in _registrations(bare):
        if target != os.fspath(tree / ".git"):
            continue
        for name in ("index.lock", "HEAD.lock"):
            lock = registration / name
            if lock.exists():
                lock.unlink(missing_ok=True)
                found = True
    return found


def _registrations(bare: Path) -> list[tuple[Path, str | None]]:
    """All registrations, each with the tree's .git file that it names, or None where a killed add wrote none."""
    folder = bare / "worktrees"
    return [(path, _target(path)) for path in folder.iterdir()] if folder.is_dir() else []


def _target(registration: Path) -> str | None:
    try:
        return os.fsdecode((registration / "gitdir").read_bytes()).rstrip("\n") or None
    except OSError:
        return None
