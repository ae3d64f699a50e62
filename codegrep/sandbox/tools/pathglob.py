"""Globs: the one rule by which grep, glob and the listing of a folder say which files they see.

`*`, `?` and `[...]` stay within a name, `**` spans folders, `{a,b}` are alternatives, a backslash takes the next
character as it is. A glob without a slash is for names at any depth; a leading slash keeps it to the root.

A hidden name, which begins with a dot, is matched only by a part of the glob that begins with a dot itself, and `**`
spans no hidden folder. Folders that the caller named as the place to look in are exempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

_TOKEN = re.compile(r"\\.|\[[!^]?\]?[^\]]*\]|.", re.DOTALL)
_MOST_TOKENS = 4096  # of all alternatives together
_DEEPEST = 20
# Stands before a hidden name that is exempt; no name holds it.
_EXEMPT = "\0"
_VISIBLE = r"(?!\.)[^/]+"


class BadGlob(Exception):
    """The glob cannot be read. `str(error)` says why."""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is left out unless a glob spells its dot."""
    return name.startswith(".")


def is_seen(path: str, globs: Sequence[str], exempt: int = 0) -> bool:
    """Return whether a file matches the last glob that says something about it; without globs all but hidden ones do.

    Args:
        path: POSIX path.
        globs: a leading `!` leaves out what the rest matches.
        exempt: so many folders at the path's beginning may be hidden.

    Raises:
        BadGlob: one of the globs.
    """
    parts = path.split("/")
    marked = "/".join(_EXEMPT + part if n < exempt and is_hidden(part) else part for n, part in enumerate(parts))
    for glob in reversed(globs):
        if compiled(glob.removeprefix("!")).fullmatch(marked):
            return not glob.startswith("!")
    return all(glob.startswith("!") for glob in globs) and compiled("**").fullmatch(marked) is not None


@lru_cache(maxsize=256)
def compiled(glob: str) -> re.Pattern[str]:
    """Return the paths that a glob matches, as a regular expression that takes time in proportion to a path's length.

    Raises:
        BadGlob: the glob cannot be read.
    """
    tokens = _TOKEN.findall(glob)
    try:
        return re.compile("|".join(map(_path, _alternatives(iter(tokens)))), re.DOTALL)
    except re.error:
        raise BadGlob("invalid range in a character class") from None


def _alternatives(tokens: Iterator[str], depth: int = 0) -> list[list[str]]:
    """Spell out the braces, up to the end of the group that is open."""
    done: list[list[str]] = []
    current: list[list[str]] = [[]]
    for token in tokens:
        if token == "{":
            if depth == _DEEPEST:
                raise BadGlob("braces are nested too deep")
            inner = _alternatives(tokens, depth + 1)
            current = [before + choice for before in current for choice in inner]
        elif token == "}":
            if depth == 0:
                raise BadGlob("unopened alternate group, '{' is missing")
            return done + current
        elif token == "," and depth:
            done += current
            current = [[]]
        else:
            for one in current:
                one.append(token)
        if sum(map(len, done)) + sum(map(len, current)) > _MOST_TOKENS:
            raise BadGlob("too many alternatives")
    if depth:
        raise BadGlob("unclosed alternate group, '}' is missing")
    return current


def _path(tokens: list[str]) -> str:
    """Return the regular expression of a glob without braces."""
    parts = _split(tokens, "/")
    if len(parts) == 1:
        parts.insert(0, ["*", "*"])
    elif not parts[0]:
        del parts[0]
    if not all(parts):
        return "(?!)"  # a slash at the end or two in a row: no file's path
    runs: list[list[str]] = [[]]
    for part in parts:
        if part == ["*", "*"]:
            runs.append([])
        else:
            runs[-1].append(_name(part))
    first, *others = ["".join(f"{name}/" for name in run) for run in runs]
    if not others:
        return first.removesuffix("/")
    # Behind each ** but the last, the first place that is right is as good as any other: atomic.
    middle = "".join(f"(?>(?:{_VISIBLE}/)*?{run})" for run in others[:-1] if run)
    return f"{first}{middle}(?:{_VISIBLE}/)*{others[-1].removesuffix('/') or _VISIBLE}"


def _name(tokens: list[str]) -> str:
    dot = "" if tokens[0] in (".", "\\.") else r"(?!\.)"
    first, *others = ["".join(map(_one, run)) for run in _split(tokens, "*")]
    # The same for stars: tried in all ways together they would take minutes on a long name.
    middle = "".join(f"(?>[^/]*?{run})" for run in others[:-1] if run)
    return f"{dot}{_EXEMPT}?{first}{middle}" + (f"[^/]*{others[-1]}" if others else "")


def _split(tokens: list[str], at: str) -> list[list[str]]:
    runs: list[list[str]] = [[]]
    for token in tokens:
        if token == at:
            runs.append([])
        else:
            runs[-1].append(token)
    return runs


def _one(token: str) -> str:
    """Return the regular expression of one character of a name."""
    if token == "?":
        return "[^/]"
    if token == "[":
        raise BadGlob("unclosed character class, ']' is missing")
    if token == "\\":
        raise BadGlob("a backslash at the end")
    if len(token) == 1 or token[0] == "\\":
        return re.escape(token[-1])
    negated = token[1] in "!^"
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", token[1 + negated : -1])
    return f"(?!/)[{'^' * negated}{members}]"
