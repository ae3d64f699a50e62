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
    """Remove the registrations of `tree`, whole or half-written, and nothing else. The bare clone's lock is held."""
    folder = bare / "worktrees"
    if not folder.is_dir():
        return
    # git names a registration after the tree's folder, with a number behind it when that name is taken. Under the lock
    # no add is going on, so one that names no tree is what a killed add of ours has left.
    ours = re.compile(re.escape(tree.name) + r"\d*")
    for registration in folder.iterdir():
        if ours.fullmatch(registration.name) and _target(registration) in (None, os.fspath(tree / ".git")):
            shutil.rmtree(registration, ignore_errors=True)


def registration_of(tree: Path) -> Path | None:
    """Return the folder in a clone that a tree names and that names the tree, or None."""
    try:
        pointer = os.fsdecode((tree / ".git").read_bytes())
    except OSError:
        return None
    registration = Path(pointer.removeprefix("gitdir:").strip())
    ours = registration.parent.name == "worktrees" and _target(registration) == os.fspath(tree / ".git")
    return registration if ours else None


def _target(registration: Path) -> str | None:
    """Return the tree's .git file that a registration names, or None where a killed add wrote none."""
    try:
        return os.fsdecode((registration / "gitdir").read_bytes()).rstrip("\n") or None
    except OSError:
        return None
