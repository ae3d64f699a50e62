"""Reads the output of a search as it comes: counts every line, keeps few.

Two readers for two forms. `BlockReader` takes ripgrep's headings (`path NUL`, the file's lines, an empty line) and
works on whole blocks of lines, so that a pattern with ten thousand matches costs little more than ripgrep itself.
`MatchReader` takes `grep`'s records, each with its path, and the counts of both.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from codegrep.sandbox.tools.formatting import shown_path

#: Output of one search that is read; a broader pattern is counted first and then read from the files that are shown.
#: Reading is cheap, starting anew is not: the limit is for patterns that match most lines of a large tree.
MAX_OUTPUT = 64 << 20
# A minified file may have a match in every other byte of one line.
_MAX_PLACES = 8 << 20
# ripgrep puts these sentences between its records; a match's own line cannot begin with them, its path comes first.
_BINARY_NOTE = re.compile(
    rb"^(?P<path>.*?): (?:WARNING: stopped searching binary file after match|binary file matches) "
    rb'\(found "[^"\n]*" byte around offset \d+\)\n',
    re.DOTALL,
)
# Possessive quantifiers and a look at the first letter: most lines fail, and they have to fail fast.
_DEFINES = (
    rb"\d++:[ \t\f\v\r]*+(?=[acdefimpst])"
    rb"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([a-z]+\))?|cdef|cpdef)"
    rb"[ \t\f\v\r]++)*+"
    rb"(?:def|class|func|fn|function|interface|struct|enum|trait|type|module)[ \t\f\v\r]++(\w++)"
)
_DEFINITION = re.compile(rb"\n(" + _DEFINES + rb"[^\n]*+)")
_DEFINED, _DEFINED_HERE = re.compile(rb"\n" + _DEFINES), re.compile(_DEFINES)
_NUMBERED_LINE = re.compile(rb"^\d+:[^\n]*\n", re.MULTILINE)
#: Ranks of a file.
NAMES_IT, DEFINES, OTHER = 0, 1, 2


@dataclass(slots=True)
class FileHits:
    """What one search found in one file.

    Attributes:
        path: bytes, relative to the tree.
        count: matching lines, all of them.
        kept: the first of them, each `number:text LF`; text is made of them only where it is shown.
        rank: 0 when a matching line defines a name that the pattern spells, 1 for another definition, 2 otherwise.
        telling: the first line of the best rank.
    """

    path: bytes
    count: int = 0
    kept: bytes = b""
    rank: int = OTHER + 1
    telling: bytes = b"0:"

    @property
    def shown(self) -> str:
        """The path as text."""
        return shown_path(self.path)

    def with_lines(self, other: FileHits | None) -> FileHits:
        """Return this file's count with another search's lines."""
        if other is None:
            return self
        return FileHits(self.path, self.count, other.kept, other.rank, other.telling)


@dataclass(slots=True)
class Found:
    """What one search found in all files: the counts of everything, and the part that is shown.

    Attributes:
        count: matching lines.
        files: files with a matching line.
        first: the first of the lines in the order of paths, each as path and `number:text`.
        telling: the files that tell most, in the order of paths: those that define what was searched for go first.
    """

    count: int = 0
    files: int = 0
    first: list[tuple[bytes, bytes]] = field(default_factory=list)
    telling: list[FileHits] = field(default_factory=list)

    @classmethod
    def of(cls, hits: Sequence[FileHits], keep: int, most_files: int) -> Found:
        """Return the same of matching files in the order of paths.

        Args:
            keep: lines of `first`.
            most_files: files of `telling`.
        """
        lines = ((h.path, line) for h in hits for line in h.kept.split(b"\n")[:-1])
        telling = sorted(range(len(hits)), key=lambda n: hits[n].rank)[:most_files]
        return cls(
            sum(h.count for h in hits),
            len(hits),
            list(itertools.islice(lines, keep)),
            [hits[n] for n in sorted(telling)],
        )


def name_words(pattern: str) -> frozenset[bytes]:
    """Return the identifiers that a pattern spells out, in lower case."""
    plain = re.sub(r"\\[a-zA-Z]", " ", pattern)
    return frozenset(word.lower().encode() for word in re.findall(r"\w{2,}", plain))


class MatchReader:
    """Takes the chunks of `path NUL number : text LF` records (or `path NUL count LF`). CRLF counts as LF.

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
        self._rest: list[bytes] = []  # what of the output is no whole line yet
        self._hits: dict[bytes, FileHits] = {}

    @property
    def ended_binary(self) -> bool:
        """The last thing said was that a binary file matches."""
        return _BINARY_NOTE.match(b"".join(self._rest)) is not None

    def hits(self) -> list[FileHits]:
        """Return the files with at least one match, in no order."""
        return [h for h in self._hits.values() if h.count]

    def take(self, chunk: bytes) -> bool:
        """Read a chunk; False when the output is longer than it may be."""
        self._left -= len(chunk)
        if self._left < 0:
            self.overflowed = True
            return False
        self._rest.append(chunk)
        if b"\n" in chunk:  # CRLF ends lines of files, and with --crlf ripgrep's own
            self._rest = [self._read(b"".join(self._rest).replace(b"\r\n", b"\n"))]
        return True

    def _read(self, data: bytes) -> bytes:
        """Take what is complete and give back the rest."""
        at = 0
        while (nul := data.find(b"\0", at)) >= 0 and (end := data.find(b"\n", nul)) >= 0:
            hits, rest = self._file(data[at:nul]), data[nul + 1 : end + 1]
            if self._counts:
                hits.count = int(rest)
            else:
                self._lines(hits, rest)
            at = end + 1
        return data[at:]

    def _file(self, path: bytes) -> FileHits:
        path = _without_notes(path)
        found = self._hits.get(path)
        if found is None:
            found = self._hits[path] = FileHits(path.removeprefix(b"./"))
        return found

    def _lines(self, hits: FileHits, lines: bytes) -> None:
        """Add whole lines, each `number:text LF`, to a file."""
        count, wanted = lines.count(b"\n"), self._keep - hits.count
        if count <= wanted:
            hits.kept += lines
        elif wanted > 0:
            hits.kept += b"".join(line + b"\n" for line in lines.split(b"\n", wanted)[:wanted])
        if hits.rank > OTHER:
            hits.rank, hits.telling = OTHER, lines[: lines.index(b"\n")]
        hits.count += count
        if hits.rank > (NAMES_IT if self._words else DEFINES):
            self._look_for_definitions(hits, lines)

    def _look_for_definitions(self, hits: FileHits, lines: bytes) -> None:
        if not self._words:  # as for a single letter, which half of all lines hold: the first one will do
            if (found := _DEFINITION.search(b"\n" + lines)) is not None:
                hits.rank, hits.telling = DEFINES, found[1]
            return
        for line, name in definitions(lines):
            if name in self._words:
                hits.rank, hits.telling = NAMES_IT, line
                return
            if hits.rank > DEFINES:
                hits.rank, hits.telling = DEFINES, line


class BlockReader(MatchReader):
    """Read the chunks of ripgrep's output with headings.

    They hold `path NUL`, lines `number:text LF`, and an empty line between files. A line is never empty, since its
    number comes first, so the first empty line ends a file.
    """

    def __init__(self, keep: int, max_output: int, words: frozenset[bytes]) -> None:
        super().__init__(keep, max_output, words)
        self._open: FileHits | None = None

    def _read(self, data: bytes) -> bytes:
        at = 0
        while at < len(data):
            if self._open is None:
                nul = data.find(b"\0", at)
                if nul < 0:
                    break
                self._open = self._file(data[at:nul])
                at = nul + 1
            elif data.startswith(b"\n", at):
                self._open = None
                at += 1
            else:
                between = data.find(b"\n\n", at)
                end = between + 1 if between >= 0 else data.rfind(b"\n", at) + 1
                if end <= at:
                    break
                self._lines(self._open, data[at:end])
                at = end
        return data[at:]

    def _lines(self, hits: FileHits, lines: bytes) -> None:
        if lines := _numbered_ones(hits.path, lines):
            super()._lines(hits, lines)


class PlaceReader(MatchReader):
    """Takes the chunks of `path NUL number : offset : match LF` records until the first of each line is known.

    Attributes:
        places: offset by path and number of the line.
    """

    def __init__(self, lines: Iterable[tuple[bytes, int]]) -> None:
        super().__init__(0, _MAX_PLACES, frozenset())
        self.places: dict[tuple[bytes, int], int] = {}
        self._wanted = set(lines)

    def take(self, chunk: bytes) -> bool:
        """Read a chunk; False when nothing more is needed, or the output is longer than it may be."""
        return super().take(chunk) and bool(self._wanted)

    def _lines(self, hits: FileHits, lines: bytes) -> None:
        number, offset, _ = lines.split(b":", 2)
        key = (hits.path, int(number))
        if key in self._wanted:
            self._wanted.remove(key)
            self.places[key] = int(offset)


class LineReader:
    """Takes the same output as BlockReader and keeps all of its lines; see MatchReader for `max_output`."""

    def __init__(self, max_output: int) -> None:
        self._left = max_output
        self._chunks: list[bytes] = []

    def take(self, chunk: bytes) -> bool:
        """Keep a chunk; False when the output is longer than it may be."""
        self._left -= len(chunk)
        self._chunks.append(chunk)
        return self._left >= 0

    @property
    def output(self) -> bytes:
        """All that was printed."""
        return b"".join(self._chunks)

    def files(self) -> list[tuple[bytes, bytes]]:
        """Path and lines, each `number:text LF`, of each file, in the order of paths."""
        output = self.output
        found: list[tuple[bytes, bytes]] = []
        at = 0
        # A path may hold anything but NUL; a line is never empty, since its number comes first, so behind the path two
        # line ends are the end of a file.
        while (nul := output.find(b"\0", at)) >= 0:
            end = output.find(b"\n\n", nul) + 1 or len(output)
            path = _without_notes(output[at:nul])
            if lines := _numbered_ones(path, output[nul + 1 : end]):
                found.append((path.removeprefix(b"./"), lines))
            at = end + 1
        return sorted(found)


def definitions(lines: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Those of the lines, each `number:text LF`, that define something, each with the name in lower case."""
    for line, name in _DEFINITION.findall(b"\n" + lines):
        yield line, name.lower()


def definition_places(output: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the lines that define something: where each begins, where the name ends, and the name in lower case.

    A line is `number:text` behind a line end.
    """
    for found in _DEFINED.finditer(output):
        yield found.start() + 1, found.end(), found[1].lower()


def defined_name(output: bytes, start: int, end: int = sys.maxsize) -> bytes | None:
    """Return the lower-case name that the line `number:text` between two places defines, or None."""
    found = _DEFINED_HERE.match(output, start, end)
    return None if found is None else found[1].lower()


def _without_notes(path: bytes) -> bytes:
    while b"\n" in path and (note := _BINARY_NOTE.match(path)) is not None:
        path = path[note.end() :].removeprefix(b"\n")
    return path


def _numbered_ones(path: bytes, lines: bytes) -> bytes:
    """Return the lines of a file without ripgrep's notes, which begin with the path."""
    if b"binary file" in lines or b"\n" in path:
        return b"".join(_NUMBERED_LINE.findall(lines))
    return lines


def numbered(line: bytes, width: int) -> tuple[int, str]:
    """Return number and text of a `number:text`.

    Args:
        width: bytes of the text that count. ripgrep alone prints at least so many of a longer line, and then a note.
    """
    number, _, text = line.partition(b":")
    return int(number), text[:width].decode("utf-8", "replace")
