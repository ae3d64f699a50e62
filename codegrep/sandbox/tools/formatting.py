"""Text as a model is shown it: no control characters, long lines in parts, cut at whole lines, every cut stated."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from codegrep.text import around

# Control characters (a terminal's, or a lone CR) and the separators that some readers take for line ends.
_UNSHOWABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def shown_line(text: str, max_chars: int, at: int = 0) -> str:
    """Return one line of a file, without its line end: at most `max_chars` characters around a place."""
    text, _ = around(text.rstrip("\r\n"), at, max_chars)
    return text if text.isprintable() else _UNSHOWABLE.sub("\ufffd", text)


@functools.lru_cache(maxsize=1 << 14)
def shown_path(path: bytes) -> str:
    r"""Return a file's name as text on one line: bytes that are not UTF-8, and control characters, as `\\xNN`."""
    text = path.decode("utf-8", "backslashreplace")
    return _UNSHOWABLE.sub(lambda m: ascii(m.group())[1:-1], text)


def fit(lines: Sequence[str], max_chars: int, header: Callable[[int], str]) -> tuple[str, int]:
    """As many whole lines as fit under a header that says how many those are.

    Args:
        header: of the number of lines shown; "" for none. Must not get longer when fewer lines are shown, except that
            it may be empty for all of them.

    Returns:
        The text of at most `max_chars` characters and the number of lines in it.
    """
    whole = "\n".join([*([head] if (head := header(len(lines))) else []), *lines])
    if len(whole) <= max_chars:
        return whole, len(lines)
    room = max_chars - max(len(header(len(lines) - 1)), len(header(0)))
    count = 0
    for line in lines[:-1]:
        room -= len(line) + 1
        if room < 0:
            break
        count += 1
    return "\n".join([header(count), *lines[:count]])[:max_chars], count
