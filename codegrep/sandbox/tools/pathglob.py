"""Globs without ripgrep: `*` and `?` stay within a name, `**` spans folders, braces are alternatives."""

from __future__ import annotations

import fnmatch
import itertools
import re
from functools import lru_cache

_MAX_ALTERNATIVES = 64


def matches_glob(path: str, glob: str) -> bool:
    """True when a POSIX path matches, with ripgrep's rules: a glob without a slash is for names at any depth."""
    parts = path.split("/")
    for alternative in alternatives(glob):
        wanted = alternative.strip("/").split("/")
        if "/" not in alternative.strip("/") and not alternative.startswith("/"):
            wanted = ["**", *wanted]
        if _match(parts, wanted):
            return True
    return False


def _match(parts: list[str], wanted: list[str]) -> bool:
    # reachable[i]: the globs looked at so far match the first i parts. Linear in both, whatever the number of stars.
    reachable = [True] + [False] * len(parts)
    for glob in wanted:
        if glob == "**":
            reachable = list(itertools.accumulate(reachable, lambda a, b: a or b))
        else:
            pattern = _component(glob)
            reachable = [False] + [reachable[i] and pattern.match(part) is not None for i, part in enumerate(parts)]
    # A trailing ** stands for files below a folder, not for the folder itself; files are all that is asked about.
    return reachable[-1]


@lru_cache(maxsize=256)
def _component(glob: str) -> re.Pattern[str]:
    # fnmatch makes every star but the last atomic, so no glob can backtrack for long.
    return re.compile(fnmatch.translate(re.sub(r"\*+", "*", glob)))


@lru_cache(maxsize=64)
def alternatives(glob: str) -> tuple[str, ...]:
    """`*.{a,b}` as `*.b` and `*.a`; at most so many that no glob can blow up."""
    done: list[str] = []
    todo = [glob]
    while todo and len(done) + len(todo) <= _MAX_ALTERNATIVES:
        text = todo.pop()
        found = re.search(r"\{([^{}]*)\}", text)
        if found is None:
            done.append(text)
        else:
            todo += [text[: found.start()] + choice + text[found.end() :] for choice in found.group(1).split(",")]
    return tuple(done)
