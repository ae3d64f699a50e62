"""Strict normalisation of the paths that a model answers, before they are scored (CodeGrep, arXiv 2608.05886, 3.2).

Strict means that a wrong path stays wrong: nothing is looked up, guessed, lower-cased or resolved. In particular a
leading ".." is kept, so that `../x.py` never becomes the hit `x.py`.
"""

from __future__ import annotations

from collections.abc import Iterable


def normalise_path(path: str, worktree: str = "") -> str:
    """Bring one path to repo-relative POSIX form.

    Args:
        path: as the model wrote it.
        worktree: absolute path of the worktree that the model may have been shown; dropped where the path lies under
            it.

    Returns:
        The path without outer white space, leading "./" and "/", empty and inner "." parts, with backslashes as
        slashes. A trailing slash is kept, since it names a folder and no file. "" where nothing is left.
    """
    text = path.strip().replace("\\", "/")
    prefix = worktree.strip().replace("\\", "/").rstrip("/")
    if prefix and text.startswith(prefix + "/"):
        text = text[len(prefix) + 1 :]
    parts = text.split("/")
    kept = [part for part in parts if part not in ("", ".")]
    if kept and parts[-1] in ("", "."):
        kept.append("")
    return "/".join(kept)


def normalise_paths(paths: Iterable[str], worktree: str = "") -> tuple[str, ...]:
    """Normalise many paths: order kept, later duplicates and empty paths dropped."""
    return tuple(dict.fromkeys(p for p in (normalise_path(path, worktree) for path in paths) if p))
