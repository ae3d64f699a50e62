"""The lines that one ripgrep printed for several questions, as columns: which of them each question matches.

A broad word has ten thousands of lines in a large tree, and each question is given its own out of the lines of all. So
nothing here is done line by line: lines are numbers, and what is known of them (the file, a definition's name) stands
in arrays. Objects are made for what is shown.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from codegrep.sandbox.tools.literals import FOLDS_TO_ASCII, Text
from codegrep.sandbox.tools.matches import (
    DEFINES,
    NAMES_IT,
    OTHER,
    FileHits,
    Found,
    LineReader,
    defined_name,
    definition_places,
)

# Bytes by which it is judged how rare a byte is.
_SAMPLE = 1 << 16
# Bytes that fit into a processor's cache: compared several times as fast.
_CHUNK = 1 << 17
# Bytes in which a text is looked for at once: a place in each of them takes eight more, several times.
_BLOCK = 1 << 22
_LINE_END, _BEYOND_ASCII = 10, 0x80
# Bytes that a line's number takes at most, with its colon.
_NUMBER = 20

_Numbers = NDArray[np.int64]
_Bytes = NDArray[np.uint8]


class Printed:
    """Everything that was printed, but for files that are left out.

    Args:
        printed: ripgrep's output.
        is_left_out: whether a file, by its path, is no part of any answer.
        width: bytes of a line's text that count; see matches.numbered.
    """

    def __init__(self, printed: LineReader, is_left_out: Callable[[bytes], bool], width: int) -> None:
        self._width = width
        self._read(printed.output)
        if not self._is_plain() or b"binary file" in self._output:
            # A line end in a path, or perhaps a note of ripgrep's: put together once more, with empty paths.
            files = printed.files()
            self._read(b"\n".join([b"\0" + lines.replace(b"\0", b"\1") for _, lines in files]))
            self._paths = [path for path, _ in files]
        else:
            begins = self._starts[self._heads].tolist()
            places = zip(begins, self._path_ends.tolist(), strict=True)
            self._paths = [self._output[begin:end].removeprefix(b"./") for begin, end in places]
        self._starts[self._heads] = self._path_ends + 1
        self._left_out = np.array([is_left_out(path) for path in self._paths], np.bool_)
        self._some_left_out = bool(self._left_out.any())
        # The place of each file in the order of paths.
        self._rank = np.empty(len(self._paths), np.int64)
        self._rank[sorted(range(len(self._paths)), key=self._paths.__getitem__)] = np.arange(len(self._paths))
        self._lower: _Bytes | None = None
        self._often = np.bincount(self._bytes[:_SAMPLE], minlength=256)
        self._names: dict[bytes, int] = {}
        self._defining, self._named = self._definitions()

    def _read(self, output: bytes) -> None:
        """Find lines and files in `path NUL`, lines `number:text LF`, and an empty line between files."""
        self._output = output if output.endswith(b"\n") else output + b"\n"
        self._bytes = np.frombuffer(self._output, np.uint8)
        self._ends = _places(self._bytes, ((0, _LINE_END),), 0, len(self._bytes))
        self._starts = np.concatenate(([0], self._ends[:-1] + 1))
        # Of each file its first line, and where its path ends.
        self._heads = np.concatenate(([0], np.flatnonzero(self._starts == self._ends) + 1))[: None if output else 0]
        self._path_ends = _places(self._bytes, ((0, 0),), 0, len(self._bytes))

    def _is_plain(self) -> bool:
        """Whether each file has one NUL, behind its path, in its first line."""
        return np.array_equal(np.searchsorted(self._ends, self._path_ends), self._heads)

    @property
    def folds(self) -> bool:
        """Whether a letter outside ASCII is one inside it when case is ignored."""
        return not self._output.isascii() and any(letter in self._output for letter in FOLDS_TO_ASCII)

    def found(
        self, texts: Sequence[Text], ignore_case: bool, words: frozenset[bytes], keep: int, most_files: int
    ) -> Found | None:
        """Return the lines that hold one of the texts; None where that depends on a character outside ASCII.

        Args:
            texts: none begins like a line's number.
            ignore_case: of ASCII letters.
            words: see matches.name_words.
            keep: lines that are given back.
            most_files: files that are given back, the most telling ones.
        """
        if (lines := self._holding(texts, ignore_case)) is None:
            return None
        file_of_line = np.searchsorted(self._heads, lines, "right") - 1
        if self._some_left_out:
            right = ~self._left_out[file_of_line]
            lines, file_of_line = lines[right], file_of_line[right]
        if not len(lines):
            return Found()
        firsts = _firsts(file_of_line)
        files, counts = file_of_line[firsts], np.diff(firsts, append=len(lines))
        ranks, telling = np.full(len(files), OTHER), lines[firsts]
        for rank, chosen in self._defining_lines(lines, words):
            some = file_of_line[chosen]
            first = _firsts(some)
            at = np.searchsorted(files, some[first])
            ranks[at], telling[at] = rank, lines[chosen][first]
        order = np.argsort(self._rank[files])
        kept = order
        if len(order) > most_files:
            kept = order[np.sort(np.argsort(ranks[order], kind="stable")[:most_files])]
        columns = [column[kept].tolist() for column in (files, counts, ranks, telling)]
        return Found(
            count=len(lines),
            files=len(files),
            first=self._first(lines, files[order], firsts[order], counts[order], keep),
            telling=[
                FileHits(self._paths[file], count, b"", rank, self._line(line))
                for file, count, rank, line in zip(*columns, strict=True)
            ],
        )

    def _defining_lines(self, lines: _Numbers, words: frozenset[bytes]) -> list[tuple[int, _Numbers]]:
        """Which of the lines, by their places, define something, and which define one of the words; with the rank."""
        if not len(self._defining):
            return []
        at = np.minimum(np.searchsorted(self._defining, lines), len(self._defining) - 1)
        defines = np.flatnonzero(self._defining[at] == lines)
        wanted = [self._names[word] for word in words if word in self._names]
        if not len(defines) or not wanted:
            return [(DEFINES, defines)]
        named = self._named[at[defines]]
        right = named == wanted[0] if len(wanted) == 1 else np.isin(named, wanted)
        return [(DEFINES, defines), (NAMES_IT, defines[right])]

    def _first(
        self, lines: _Numbers, files: _Numbers, firsts: _Numbers, counts: _Numbers, keep: int
    ) -> list[tuple[bytes, bytes]]:
        """Return the first of the lines, file by file: path and line."""
        found: list[tuple[bytes, bytes]] = []
        for file, first, count in zip(files[:keep].tolist(), firsts.tolist(), counts.tolist(), strict=False):
            wanted = lines[first : first + min(count, keep - len(found))].tolist()
            found += [(self._paths[file], self._line(line)) for line in wanted]
            if len(found) >= keep:
                break
        return found

    def _line(self, number: int) -> bytes:
        """Cut a line to what counts: lines of a minified file have a megabyte each."""
        start = int(self._starts[number])
        line = self._output[start : min(int(self._ends[number]), start + _NUMBER + self._width)]
        return line.removesuffix(b"\r")

    def _holding(self, texts: Sequence[Text], ignore_case: bool) -> _Numbers | None:
        """Return the numbers of the lines that hold one of the texts, ascending."""
        looked_at = self._bytes
        if ignore_case:
            if self._lower is None:
                self._lower = np.frombuffer(self._output.lower(), np.uint8)  # of bytes: ASCII letters only
            looked_at = self._lower
            texts = [tuple(piece.lower() for piece in text) for text in texts]
        found: list[_Numbers] = []
        for text in texts:
            if (lines := self._lines_with(looked_at, text)) is None:
                return None
            found.append(lines)
        return found[0] if len(found) == 1 else np.unique(np.concatenate(found))

    def _lines_with(self, looked_at: _Bytes, text: Text) -> _Numbers | None:
        """Return the numbers of the lines with a text, ascending. A path is no line."""
        first, *others = text
        # Where its two rarest bytes are right, and then the others too.
        rare = sorted(enumerate(first), key=lambda one: int(self._often[one[1]]))
        found: list[_Numbers] = []
        end = len(looked_at) - len(first) + 1
        for begin in range(0, end, _BLOCK):
            places = _places(looked_at, rare[:2], begin, min(end, begin + _BLOCK))
            for at, byte in rare[2:]:
                places = places[looked_at[places + at] == byte]
            if others:
                if (going_on := _going_on(looked_at, places + len(first), others)) is None:
                    return None
                places = places[going_on]
            lines = np.searchsorted(self._ends, places)
            lines = lines[places >= self._starts[lines]]
            found.append(lines[_firsts(lines)])
        if len(found) == 1:
            return found[0]
        lines = np.concatenate([np.zeros(0, np.int64), *found])
        return lines[_firsts(lines)]

    def _definitions(self) -> tuple[_Numbers, _Numbers]:
        """Return the numbers of the lines that define something, ascending, and of each the number of the name."""
        # A line behind a path is not one behind a line end; and a path may look like a definition.
        begun = [(start, start + self._width + 1, b"") for start in self._starts[self._heads].tolist()]
        # Numbers, not objects: generated code may have millions of definitions.
        places, names = array("q"), array("q")
        for start, end, name in itertools.chain(begun, definition_places(self._output)):
            counts = name if end - start <= self._width else self._definition_at(start)
            if counts is not None:
                places.append(start)
                names.append(self._names.setdefault(counts, len(self._names)))
        starts, named = np.array(places, np.int64), np.array(names, np.int64)
        order = np.argsort(starts, kind="stable")
        starts, named = starts[order], named[order]
        lines = np.searchsorted(self._ends, starts)
        right = self._starts[lines] == starts
        return lines[right], named[right]

    def _definition_at(self, start: int) -> bytes | None:
        """Return the name that the line at a place defines, as far as the line counts."""
        return defined_name(self._output, start, self._output.index(b":", start) + 1 + self._width)


def _firsts(numbers: _Numbers) -> _Numbers:
    """Where ascending numbers change, the first place included."""
    changes = np.empty(len(numbers), np.bool_)
    changes[:1] = True
    np.not_equal(numbers[1:], numbers[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def _places(looked_at: _Bytes, wanted: Sequence[tuple[int, int]], begin: int, end: int) -> _Numbers:
    """All places from `begin` on, before `end`, ascending, behind which each of the bytes is at its distance."""
    found = [np.zeros(0, np.int64)]
    right, also = np.empty(_CHUNK, np.bool_), np.empty(_CHUNK, np.bool_)
    for start in range(begin, end, _CHUNK):
        size = min(_CHUNK, end - start)
        (distance, byte), *others = wanted
        np.equal(looked_at[start + distance : start + distance + size], byte, out=right[:size])
        for distance, byte in others:
            np.equal(looked_at[start + distance : start + distance + size], byte, out=also[:size])
            np.logical_and(right[:size], also[:size], out=right[:size])
        found.append(np.flatnonzero(right[:size]) + start)
    return np.concatenate(found)


def _going_on(looked_at: _Bytes, places: _Numbers, pieces: Sequence[bytes]) -> _Numbers | None:
    """Return the numbers of the places that the pieces follow, each after any one character.

    None where that may be a character outside ASCII.
    """
    some = np.arange(len(places))
    for piece in pieces:
        between = looked_at[places]  # a line end at the latest
        if (between >= _BEYOND_ASCII).any():
            return None
        right = (between != _LINE_END) & (places + 1 + len(piece) <= len(looked_at))
        places, some = places[right] + 1, some[right]
        for byte in piece:
            right = looked_at[places] == byte
            places, some = places[right] + 1, some[right]
    return some
