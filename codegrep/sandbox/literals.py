"""What a text must contain to match a regular expression: literal pieces, for an index to look up.

Reads the part of the Rust syntax that it understands without any doubt and gives up on the rest, since a piece that is
not really required would hide matches. ripgrep itself has the last word on every pattern, also on its being valid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Alternatives of pieces: a matching text holds every piece of at least one of them.
Required = tuple[frozenset[str], ...]

#: A text, in UTF-8, in pieces; between two pieces stands any one character.
Text = tuple[bytes, ...]

#: What `k` and `s` also match when case is ignored, in UTF-8: KELVIN SIGN and LATIN SMALL LETTER LONG S.
FOLDS_TO_ASCII = (b"\xe2\x84\xaa", b"\xc5\xbf")

#: A pattern about which nothing is known.
ANYTHING: Required = (frozenset(),)

# More alternatives than this are not worth their look-ups.
_MOST = 64
_NO_LITERAL = frozenset("dDwWsSbBAz")
_REPEAT = re.compile(r"\{(\d{1,4})(,\d{0,4})?\}")
_CLASS = re.compile(r"\[\^?\]?(?:[^\[\]\\&~-]|\\.|-(?!-)|&(?!&)|~(?!~))*\]")
_SPECIAL = frozenset("\\.^$*+?{}[]()|")
# What every version of the syntax takes behind a backslash; newer ones take all ASCII punctuation.
_META = _SPECIAL | frozenset("#&-~")
_ESCAPABLE = frozenset(r"""\.+*?()|[]{}^$#&-~/"'!%,:;=@`_ """) - {"_", " "}


class _NotUnderstood(Exception):
    pass


def required_literals(pattern: str, ignore_case: bool) -> Required:
    """The pieces, in lower case (ASCII letters only); ANYTHING where nothing can be said.

    Args:
        ignore_case: then only ASCII pieces count; two letters have further forms that the caller has to mind: k (the
            Kelvin sign) and s (the long s).
    """
    try:
        reader = _Reader(pattern, ignore_case)
        found = reader.alternatives()
        if reader.at < len(pattern):
            return ANYTHING
        return found
    except (_NotUnderstood, RecursionError):
        return ANYTHING


def whole_literals(pattern: str, ignore_case: bool) -> tuple[Text, ...] | None:
    """The texts of which a line has to hold one to match, where the pattern is nothing more than that.

    `foo`, `foo\\(|bar` and `foo.bar` are such patterns. None for every other one, for letters outside ASCII when case
    is ignored, and for U+FFFD, which stands for bytes that are no text.
    """
    found = [[""]]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and pattern[at + 1 : at + 2] in _META:
            at += 1
            found[-1][-1] += pattern[at]
        elif char == "|":
            found.append([""])
        elif char == ".":
            found[-1].append("")
        elif char in _SPECIAL or char == "\ufffd" or (ignore_case and not char.isascii()):
            return None
        else:
            found[-1][-1] += char
        at += 1
    if len(found) > _MOST or not all(map(all, found)):
        return None
    return tuple(tuple(piece.encode("utf-8") for piece in text) for text in dict.fromkeys(map(tuple, found)))


class _Reader:
    """A recursive-descent reader; `at` is the next character."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self.at = 0
        self._pattern = pattern
        self._ascii_only = ignore_case

    def alternatives(self) -> Required:
        """Everything up to a closing parenthesis or the end."""
        found: set[frozenset[str]] = set(self._sequence())
        while self._next() == "|":
            self.at += 1
            found |= set(self._sequence())
        return tuple(found) if frozenset() not in found and len(found) <= _MOST else ANYTHING

    def _sequence(self) -> Required:
        pieces: Required = ANYTHING
        run = ""
        while (char := self._next()) not in ("", "|", ")"):
            atom, inner = self._atom(char)
            least, most = self._repetition()
            if len(atom) == 1 and (least, most) == (1, 1):
                run += atom
                continue
            # A repeated character belongs to what is before it once, and what follows it begins anew.
            pieces = _both(pieces, _piece(run + atom if least else run))
            run = ""
            if inner is not None and least:
                pieces = _both(pieces, inner)
        return _both(pieces, _piece(run))

    def _atom(self, char: str) -> tuple[str, Required | None]:
        """One element: its character where it is a literal one, and what a group requires."""
        self.at += 1
        if char == "\\":
            return self._escape(), None
        if char == "(":
            return "", self._group()
        if char == "[":
            found = _CLASS.match(self._pattern, self.at - 1)
            if found is None:
                raise _NotUnderstood
            self.at = found.end()
            return "", None
        if char in ".^$":
            return "", None
        if char in "*+?{}]":
            raise _NotUnderstood
        return self._literal(char), None

    def _escape(self) -> str:
        char = self._next()
        self.at += 1
        if char == "" or (char in _NO_LITERAL and self._next() == "{"):  # \b{start} and the like
            raise _NotUnderstood
        if char in _NO_LITERAL:
            return ""
        if char not in _ESCAPABLE:
            raise _NotUnderstood
        return char

    def _group(self) -> Required:
        if self._next() == "?":
            if not self._pattern.startswith("?:", self.at):
                raise _NotUnderstood  # flags change what everything behind them means
            self.at += 2
        found = self.alternatives()
        if self._next() != ")":
            raise _NotUnderstood
        self.at += 1
        return found

    def _literal(self, char: str) -> str:
        if char.isascii():
            return char.lower()
        return "" if self._ascii_only else char

    def _repetition(self) -> tuple[int, int | None]:
        char = self._next()
        if char in ("*", "?", "+"):
            self.at += 1
            bounds: tuple[int, int | None] = {"*": (0, None), "?": (0, 1), "+": (1, None)}[char]
        elif char == "{":
            found = _REPEAT.match(self._pattern, self.at)
            if found is None:
                raise _NotUnderstood
            self.at = found.end()
            # (1, 1) is what an element without a repetition has.
            bounds = (int(found.group(1)), None)
        else:
            return 1, 1
        if self._next() == "?":  # lazy
            self.at += 1
        if self._next() in ("*", "+", "?", "{"):
            raise _NotUnderstood
        return bounds

    def _next(self) -> str:
        return self._pattern[self.at : self.at + 1]


def _piece(run: str) -> Required:
    return (frozenset([run]),) if len(run) > 2 else ANYTHING


def _both(first: Required, second: Required) -> Required:
    if len(first) * len(second) > _MOST:
        return min(first, second, key=len)
    return tuple({one | other for one in first for other in second})


def trigrams(pieces: Sequence[str] | frozenset[str]) -> set[bytes]:
    """All runs of three bytes of the pieces, in UTF-8."""
    encoded = [piece.encode("utf-8") for piece in pieces]
    return {text[i : i + 3] for text in encoded for i in range(len(text) - 2)}
