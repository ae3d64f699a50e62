"""Finds repositories in a folder under the names that people give them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from codegrep.errors import DataError
from codegrep.issues.git import GitError, Limits, open_repository

#: "owner/name" as GitHub writes it. No part may begin with a dot or a dash, so neither ".." nor an option can appear.
REPO_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BUNDLE_START = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_REMOTE = re.compile(r"[/:]([^/:]+)/([^/:]+?)(?:\.git)?/*$")


def is_repo_label(text: str) -> bool:
    """Return whether this is "owner/name" in at most 200 harmless characters."""
    return len(text) <= 200 and REPO_LABEL.fullmatch(text) is not None and ".." not in text


def is_repository(path: Path) -> bool:
    """Return whether this is a bare repository, or the top of a working clone or linked worktree."""
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    return bare or (path / ".git").exists()


def is_bundle(path: Path) -> bool:
    """Return whether this is a git bundle, by its first line."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(_BUNDLE_START[0])) in _BUNDLE_START
    except OSError:
        return False


def checked_folder(folder: str, key: str) -> Path:
    """`folder` as an absolute path.

    Raises:
        DataError: it does not exist or is no folder.
    """
    path = Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise DataError(f"{key} names no folder: {path}", f"Set {key} to the folder that holds the repositories")
    return path


def find_repository(folder: Path, repo: str) -> Path | None:
    """Return the repository of label "owner/name" in `folder`, or None.

    Looked for, in this order: owner__name, owner+name, owner/name, name; each as it is, with `.git`, with a folder
    `repo` inside, and as `.bundle`. The bare name comes last because another owner's repository may have it too.
    """
    owner, _, name = repo.partition("/")
    for stem in (f"{owner}__{name}", f"{owner}+{name}", f"{owner}/{name}", name):
        for form in (stem, f"{stem}.git", f"{stem}/repo"):
            candidate = folder / form
            if candidate.is_dir() and is_repository(candidate):
                return candidate
        for form in (f"{stem}.bundle", f"{stem}.git.bundle"):
            if is_bundle(folder / form):
                return folder / form
    return None


def list_repositories(folder: Path) -> dict[str, Path]:
    """All repositories of `folder` by label, sorted by label. `folder` may itself be a repository or a bundle.

    The label comes from the name (owner__name, owner+name, owner/name); a plain name takes its owner from the remote
    `origin` where there is one, else "local".
    """
    if is_bundle(folder) or is_repository(folder):
        return {_label(folder, folder.name): folder}
    found: dict[str, Path] = {}
    for child in sorted(folder.iterdir(), key=os.fspath):
        if is_bundle(child) or (child.is_dir() and is_repository(child)):
            found.setdefault(_label(child, child.name), child)
        elif child.is_dir() and is_repository(child / "repo"):
            found.setdefault(_label(child / "repo", child.name), child / "repo")
        elif child.is_dir() and not child.name.startswith("."):
            for grandchild in sorted(child.iterdir(), key=os.fspath):
                if is_bundle(grandchild) or (grandchild.is_dir() and is_repository(grandchild)):
                    found.setdefault(_label(grandchild, f"{child.name}/{_stem(grandchild.name)}"), grandchild)
    return dict(sorted(found.items()))


def _stem(name: str) -> str:
    return name.removesuffix(".bundle").removesuffix(".git")


def _label(path: Path, name: str) -> str:
    stem = _stem(name)
    for separator in ("__", "+", "/"):
        owner, found, rest = stem.partition(separator)
        if found and is_repo_label(f"{owner}/{rest}"):
            return f"{owner}/{rest}"
    return _remote_label(path) or _local_label(stem)


def _local_label(stem: str) -> str:
    clean = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip(".-") or "repository"
    label = f"local/{re.sub(r'[.]{2,}', '.', clean)[:150]}"
    return label if is_repo_label(label) else "local/repository"


def _remote_label(path: Path) -> str | None:
    if path.is_file():
        return None
    try:
        with open_repository(path, Limits(30)) as repo:
            url = repo.git.config("remote.origin.url", local=True, get=True)
    except GitError:
        return None
    match = _REMOTE.search(url.strip())
    label = f"{match[1]}/{match[2]}" if (match and "://" in url) or (match and "@" in url) else ""
    return label if is_repo_label(label) else None
