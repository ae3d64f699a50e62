"""File names as diffs write them: git's quoting, the a/ and b/ prefixes, /dev/null."""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_ESCAPE = re.compile(r'\\([0-7]{3}|[abtnvfr"\\])')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
# git's own prefixes: a/b by default, the others with diff.mnemonicPrefix, b/a for a reversed diff.
_PREFIXES = (("a/", "b/"), ("b/", "a/"), ("i/", "w/"), ("c/", "i/"), ("c/", "w/"), ("o/", "w/"), ("1/", "2/"))


class Names(NamedTuple):
    """Both names of one file change without prefixes; None stands for /dev/null or an unreadable name."""

    old: str | None
    new: str | None


def unquote(name: str) -> str:
    """Return a name after `--- `, `rename from ` and the like: quotes and escapes undone, time stamp cut off.

    Bytes that are no UTF-8 become U+FFFD; such a path matches no file, as an unreadable name should.
    """
    match = _QUOTED.match(name)
    if match is None:
        return name.split("\t", 1)[0].rstrip("\r")
    raw = bytearray()
    at = 0
    body = match[1]
    for escape in _ESCAPE.finditer(body):
        raw += body[at : escape.start()].encode("utf-8", "surrogatepass")
        code = escape[1]
        raw.append(_ESCAPES[code] if code in _ESCAPES else int(code, 8) & 0xFF)
        at = escape.end()
    raw += body[at:].encode("utf-8", "surrogatepass")
    return raw.decode("utf-8", "replace")


def strip_prefixes(old: str, new: str) -> Names:
    """Remove `a/` and `b/` when the pair carries them; a diff made without prefixes is left as it is."""
    if old == "/dev/null" or new == "/dev/null":
        return Names(_single(old, "a/"), _single(new, "b/"))
    for before, after in _PREFIXES:
        if old.startswith(before) and new.startswith(after):
            return Names(old[2:] or None, new[2:] or None)
    return Names(old or None, new or None)


def _single(name: str, prefix: str) -> str | None:
    if name == "/dev/null":
        return None
    return name.removeprefix(prefix) or None


def header_names(rest: str) -> Names:
    """Return the two names after `diff --git `. Unquoted ones with spaces can be read when both are equal."""
    quoted = _QUOTED.match(rest)
    if quoted is not None:
        old, tail = unquote(rest), rest[quoted.end() :].removeprefix(" ")
        return strip_prefixes(old, unquote(tail)) if tail else Names(None, None)
    half, odd = divmod(len(rest), 2)
    if odd and rest[half] == " ":
        names = strip_prefixes(rest[:half], rest[half + 1 :])
        if names.old == names.new:
            return names
    second_quoted = rest.find(' "')
    if second_quoted > 0:
        return strip_prefixes(rest[:second_quoted], unquote(rest[second_quoted + 1 :]))
    old, _, new = rest.partition(" ")
    if new and " " not in new:
        return strip_prefixes(old, new)
    return Names(None, None)
