"""Reads the output of a search as it comes: counts every line, keeps few."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from codegrep.sandbox.tools.shown import shown_path

# ripgrep puts these sentences between its records; a match's own line cannot begin with them, its path comes first.
_BINARY_NOTE = re.compile(
    rb"^(?P<path>.*?): (?:WARNING: stopped searching binary file after match|binary file matches) "
    rb'\(found "[^"\n]*" byte around offset \d+\)\n',
    re.DOTALL,
)
_DEFINITION = re.compile(
    rb"\s*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]+\))?|cdef|cpdef)\s+)*"
    rb"(?:def|class|func|fn|function|interface|struct|enum|trait|type|module)\s+(?P<name>\w+)"
)
_NAMES_IT, _DEFINES, _OTHER = 0, 1, 2


@dataclass
class FileHits:
    """What one search found in one file.

    Attributes:
        path: bytes, relative to the tree.
        count: matching lines, all of them.
        kept: the first of them, `number:text`; text is made of them only where it is shown.
        rank: 0 when a matching line defines a name that the pattern spells, 1 for another definition, 2 otherwise.
        telling: the first line of the best rank.
    """

    path: bytes
    count: int = 0
    kept: list[bytes] = field(default_factory=list)
    rank: int = _OTHER + 1
    telling: bytes = b"0:"

    @property
    def shown(self) -> str:
        """The path as text."""
        return shown_path(self.path)

    @property
    def lines(self) -> Iterator[tuple[int, str]]:
        """The kept lines, each with its 1-based number."""
        return map(_numbered, self.kept)

    @property
    def most_telling(self) -> tuple[int, str]:
        """Number and text of the line that stands for the file; (0, "") where no line was read."""
        return _numbered(self.telling)

    def with_lines(self, other: FileHits | None) -> FileHits:
        """This file's count with another search's lines."""
        if other is None:
            return self
        return FileHits(self.path, self.count, other.kept, other.rank, other.telling)


def name_words(pattern: str) -> frozenset[bytes]:
    """The identifiers that a pattern spells out, in lower case."""
    plain = re.sub(r"\\[a-zA-Z]", " ", pattern)
    return frozenset(word.lower().encode() for word in re.findall(r"\w{2,}", plain))


class MatchReader:
    """Takes the chunks of `path NUL number : text LF` records (or `path NUL count LF`).

    Args:
        keep: lines kept of a file.
        max_output: bytes after which reading stops.
        words: see name_words.
        counts: the records are counts.
    """

    def __init__(self, keep: int, max_output: int, words: frozenset[bytes], counts: bool = False) -> None:
        self.overflowed = False
        self._keep = keep
        self._left = max_output
        self._words = words
        self._counts = counts
        self._rest = b""
        self._hits: dict[bytes, FileHits] = {}

    @property
    def ended_binary(self) -> bool:
        """The last thing said was that a binary file matches."""
        return _BINARY_NOTE.match(self._rest) is not None

    def hits(self) -> list[FileHits]:
        """The files with at least one match, in no order."""
        return [h for h in self._hits.values() if h.count]

    def take(self, chunk: bytes) -> bool:
        """Reads a chunk; False when the output is longer than it may be."""
        self._left -= len(chunk)
        if self._left < 0:
            self.overflowed = True
            return False
        data = self._rest + chunk if self._rest else chunk
        at = 0
        while (nul := data.find(b"\0", at)) >= 0 and (end := data.find(b"\n", nul)) >= 0:
            self._record(data[at:nul], data[nul + 1 : end])
            at = end + 1
        self._rest = data[at:]
        return True

    def _record(self, path: bytes, rest: bytes) -> None:
        hits = self._hits.get(path) or self._file(path)
        if self._counts:
            hits.count = int(rest)
            return
        hits.count += 1
        if hits.count <= self._keep:
            hits.kept.append(rest)
        if hits.rank > _NAMES_IT and (rank := self._rank(rest)) < hits.rank:
            hits.rank, hits.telling = rank, rest

    def _file(self, path: bytes) -> FileHits:
        while b"\n" in path and (note := _BINARY_NOTE.match(path)) is not None:
            path = path[note.end() :]
        return self._hits.setdefault(path, FileHits(path.removeprefix(b"./")))

    def _rank(self, line: bytes) -> int:
        found = _DEFINITION.match(line, line.find(b":") + 1)
        if found is None:
            return _OTHER
        return _NAMES_IT if found.group("name").lower() in self._words else _DEFINES


def _numbered(line: bytes) -> tuple[int, str]:
    number, _, text = line.partition(b":")
    return int(number), text.decode("utf-8", "replace")
