"""What the text of a tool result shows of files: the rule by which credit, information, teacher and baselines count.

A result carries every file that matched, as data; its text shows the first lines of some, and the caps of the turn may
cut more. A model knows what it was shown, so only that counts as found. A line shows a file when it begins with the
file's path: `path:12:text` (grep), `path` (glob), `path:12-30: head` (search), `[path, lines 1-20 of 90]` (the
header of a read). The number in `path:12`, the first one in `path:12-30` and the numbers before the lines of a read are
lines of the file that are shown; the other lines of `12-30` are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_READ_HEADER = re.compile(r"\[(.*?)(?:, lines? \d| is empty\])")
_AFTER_PATH = re.compile(r"[: ]|$")
_LINE_NUMBER = re.compile(r":(\d{1,9})(?:-\d{1,9})?(?=[: ])")
_READ_LINE = re.compile(r"(\d{1,9})\t")


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file that the model was shown.

    Attributes:
        path: repo-relative POSIX path.
        lines: numbers of its lines that were shown, ascending; empty where only the name was.
    """

    path: str
    lines: tuple[int, ...] = ()


def shown_files(text: str, paths: Iterable[str], whole: str | None = None) -> tuple[ShownFile, ...]:
    """Files that a text shows, in the order in which it names them first.

    Args:
        text: of one result, as the model reads it.
        paths: those that the result names as data; what the text says besides is no path.
        whole: the text before it was cut. A line that was cut shows no file unless a `:` ends the path in it.
    """
    known = frozenset(paths)
    if not known:
        return ()
    before = None if whole is None else whole.split("\n")
    lines: dict[str, set[int]] = {}
    reading = None  # the file whose numbered lines follow
    for place, line in enumerate(text.split("\n")):
        if reading is not None and (read := _READ_LINE.match(line)):
            lines[reading].add(int(read[1]))
            continue
        header = _READ_HEADER.match(line)
        reading = header[1] if header and header[1] in known else None
        is_whole = before is None or (place < len(before) and before[place] == line)
        path = reading or _path_of(line, known, is_whole)
        if path is not None:
            numbers = lines.setdefault(path, set())
            if reading is None and (number := _LINE_NUMBER.match(line, len(path))):
                numbers.add(int(number[1]))
    return tuple(ShownFile(path, tuple(sorted(numbers))) for path, numbers in lines.items())


def merged(files: Iterable[ShownFile]) -> tuple[ShownFile, ...]:
    """Each path once, at its first place, with all of its lines."""
    lines: dict[str, set[int]] = {}
    for file in files:
        lines.setdefault(file.path, set()).update(file.lines)
    return tuple(ShownFile(path, tuple(sorted(numbers))) for path, numbers in lines.items())


def _path_of(line: str, known: frozenset[str], is_whole: bool) -> str | None:
    """Return the longest known path that the line begins with and that a delimiter ends."""
    best, longest = None, max(map(len, known))
    for end in _AFTER_PATH.finditer(line):
        if end.start() > longest:
            break
        if line[: end.start()] in known and (is_whole or end.group() == ":"):
            best = line[: end.start()]
    return best
