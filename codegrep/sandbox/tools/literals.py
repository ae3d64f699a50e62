"""Patterns that are nothing but texts: searches for them can share a process."""

from __future__ import annotations

import re
from functools import lru_cache

#: A text, in UTF-8, in pieces; between two pieces stands any one character.
Text = tuple[bytes, ...]

#: What `k` and `s` also match when case is ignored, in UTF-8: KELVIN SIGN and LATIN SMALL LETTER LONG S.
FOLDS_TO_ASCII = (b"\xe2\x84\xaa", b"\xc5\xbf")

# Alternatives of one pattern.
_MOST = 64
_SPECIAL = frozenset("\\.^$*+?{}[]()|")
# What every version of the syntax takes behind a backslash; newer ones take all ASCII punctuation.
_META = _SPECIAL | frozenset("#&-~")


def whole_literals(pattern: str, ignore_case: bool) -> tuple[Text, ...] | None:
    r"""Return the texts of which a line has to hold one to match, where the pattern is nothing more than that.

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


@lru_cache(maxsize=256)
def any_text(pattern: str, ignore_case: bool) -> re.Pattern[bytes] | None:
    """Return a pattern for the first of its texts in a line, in UTF-8; None where `pattern` is more than texts."""
    texts = whole_literals(pattern, ignore_case)
    if texts is None:
        return None
    return re.compile(b"|".join(b".".join(map(re.escape, text)) for text in texts), re.IGNORECASE if ignore_case else 0)
