"""Text of people and models: ASCII punctuation and no thoughts, for rules that look for words; parts of a long line."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FOLDED = {
    "'": "\u2018\u2019\u201b\u02bc\u2032\u00b4\uff07",
    '"': "\u201c\u201d\u201e\u201f\u2033\uff02",
    "-": "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d",
    " ": "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    "": "\u00ad\u200b\u200c\u200d\u2060\ufeff",
}
_TABLE = str.maketrans({char: ascii_ for ascii_, chars in _FOLDED.items() for char in chars})
_THINK = re.compile(r"<(/?)think>", re.IGNORECASE)


def plain(text: str) -> str:
    """`text` with ASCII apostrophes, quotes, hyphens and spaces, and without what has no width."""
    return text if text.isascii() else text.translate(_TABLE)


def without_thoughts(text: str, opaque: Sequence[tuple[int, int]] = ()) -> str:
    """Return what a model said, without what it thought.

    A thought stands between <think> and </think>, or runs to the end where it was cut off. A </think> without its
    beginning, which may have stood in the prompt, ends a thought that began with the text.

    Args:
        opaque: (start, end) of parts in which the marks are no marks, such as strings of a call.
    """
    said: list[str] = []
    at = 0
    thinking = False
    for mark in _THINK.finditer(text):
        if any(start <= mark.start() < end for start, end in opaque):
            continue
        if mark[1]:
            if not thinking:
                said.clear()
            thinking = False
            at = mark.end()
        elif not thinking:
            said.append(text[at : mark.start()])
            thinking = True
    if not thinking:
        said.append(text[at:])
    return "".join(said)


def around(text: str, at: int, max_chars: int) -> tuple[str, int]:
    """Return at most `max_chars` characters of a line around a place; `… ` and ` …` say that something is cut.

    Args:
        at: the place; where the beginning of the line shows enough behind it, the beginning is what is returned.

    Returns:
        The part of the line, and where the place is in it.
    """
    if len(text) <= max_chars:
        return text, at
    if max_chars < 8:
        return text[at : at + max_chars], 0
    ahead = max_chars // 4
    if at + ahead <= max_chars - 2:
        return f"{text[: max_chars - 2]} …", at
    start = min(at - ahead, len(text) - (max_chars - 2))
    if start + max_chars - 2 >= len(text):
        return f"… {text[start:]}", at - start + 2
    return f"… {text[start : start + max_chars - 4]} …", at - start + 2
