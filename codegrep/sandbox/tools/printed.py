"""The lines that one ripgrep printed for several questions, as columns: which of them each question matches.

A broad word has ten thousands of lines in a large tree, and each question is given its own out of the lines of all. So
nothing here is done line by line: lines are numbers, and what is known of them (the file, a definition's name) stands
in arrays with a place for each. Objects are made for what is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from codegrep.sandbox.tools.matches import DEFINES, NAMES_IT, OTHER, FileHits, Found, definition_spans, definitions

# What `k` and `s` also match when case is ignored: KELVIN SIGN and LATIN SMALL LETTER LONG S.
_FOLDS_TO_ASCII = (b"\xe2\x84\xaa", b"\xc5\xbf")
# Bytes by which it is judged how rare a byte is.
_SAMPLE = 1 << 16
_LINE_END = 10
_CHUNK = 1 << 17

_Numbers = NDArray[np.int64]


class Printed:
    """Everything that was printed.

    Args:
        files: path and lines of each file, in the order of paths; a line is `number:text LF`.
        width: bytes of a line's text that count; see matches.numbered.
    """

    def __init__(self, files: Sequence[tuple[bytes, bytes]], width: int) -> None:
        self._paths = [path for path, _ in files]
        self._content = b"".join([lines for _, lines in files])
        self._width = width
        self._bytes = np.frombuffer(self._content, np.uint8)
        self._ends = _places(self._bytes, ((0, _LINE_END),), len(self._bytes))
        sizes = np.fromiter((len(lines) for _, lines in files), np.int64, len(files))
        # The number of the first line that is no longer a file's.
        self._bounds: _Numbers = np.searchsorted(self._ends, np.cumsum(sizes))
        self._lower: NDArray[np.uint8] | None = None
        self._often = np.bincount(self._bytes[:_SAMPLE], minlength=256)
        self._names: dict[bytes, int] = {}
        self._name_of_line = self._defined()

    @property
    def folds(self) -> bool:
        """Whether a letter outside ASCII is one inside it when case is ignored."""
        return not self._content.isascii() and any(letter in self._content for letter in _FOLDS_TO_ASCII)

    def found(
        self, texts: Sequence[bytes], ignore_case: bool, words: frozenset[bytes], keep: int, most_files: int
    ) -> Found:
        """The lines that hold one of the texts.

        Args:
            texts: none begins like a line's number.
            ignore_case: of ASCII letters.
            words: see matches.name_words.
            keep: lines that are given back.
            most_files: files that are given back, the most telling ones.
        """
        lines = self._holding([text.lower() for text in texts] if ignore_case else texts, ignore_case)
        if not len(lines):
            return Found()
        file_of_line = np.searchsorted(self._bounds, lines, "right")
        firsts = np.flatnonzero(np.diff(file_of_line, prepend=-1))
        files = file_of_line[firsts]
        counts = np.diff(firsts, append=len(lines))
        ranks, telling = np.full(len(files), OTHER), lines[firsts]
        defining = self._name_of_line[lines] >= 0
        named = [self._names[word] for word in words if word in self._names]
        for rank, chosen in ((DEFINES, defining), (NAMES_IT, defining & np.isin(self._name_of_line[lines], named))):
            which, first = np.unique(file_of_line[chosen], return_index=True)
            places = np.searchsorted(files, which)
            ranks[places], telling[places] = rank, lines[chosen][first]
        kept = np.sort(np.argsort(ranks, kind="stable")[:most_files])
        columns = (files[kept], counts[kept], ranks[kept], telling[kept])
        return Found(
            count=len(lines),
            files=len(files),
            first=[
                (self._paths[file], self._line(line))
                for file, line in zip(file_of_line[:keep].tolist(), lines[:keep].tolist(), strict=True)
            ],
            telling=[
                FileHits(self._paths[file], count, b"", rank, self._line(line))
                for file, count, rank, line in zip(*(column.tolist() for column in columns), strict=True)
            ],
        )

    def _line(self, number: int) -> bytes:
        start = int(self._ends[number - 1]) + 1 if number else 0
        return self._content[start : int(self._ends[number])]

    def _holding(self, texts: Sequence[bytes], ignore_case: bool) -> _Numbers:
        """The numbers of the lines that hold one of the texts, ascending."""
        if ignore_case and self._lower is None:
            self._lower = np.frombuffer(self._content.lower(), np.uint8)  # of bytes: ASCII letters only
        looked_at = self._lower if ignore_case and self._lower is not None else self._bytes
        lines = [np.searchsorted(self._ends, self._places(looked_at, text)) for text in texts]
        if len(lines) > 1:
            return np.unique(np.concatenate(lines))
        return lines[0][np.flatnonzero(np.diff(lines[0], prepend=-1))]

    def _places(self, looked_at: NDArray[np.uint8], text: bytes) -> _Numbers:
        """Where a text begins, ascending: where its two rarest bytes are right, and then the others too."""
        rare = sorted(enumerate(text), key=lambda one: int(self._often[one[1]]))
        places = _places(looked_at, rare[:2], len(looked_at) - len(text) + 1)
        for at, byte in rare[2:]:
            places = places[looked_at[places + at] == byte]
        return places

    def _defined(self) -> NDArray[np.int32]:
        """For each line the number of the name that it defines, or -1."""
        names = np.full(len(self._ends), -1, np.int32)
        found = list(definition_spans(self._content))
        lines = np.searchsorted(self._ends, [start for start, _ in found]) if found else []
        for line, (start, name) in zip(lines, found, strict=True):
            if self._ends[line] - start > self._width:
                text = self._content.index(b":", start) + 1
                short = list(definitions(self._content[start : text + self._width]))
                if not short:
                    continue
                name = short[0][1]
            names[line] = self._names.setdefault(name, len(self._names))
        return names


def _places(looked_at: NDArray[np.uint8], wanted: Sequence[tuple[int, int]], end: int) -> _Numbers:
    """All places before `end`, ascending, behind which every one of the bytes is, each at its distance.

    Chunk by chunk: what fits into a processor's cache is compared several times as fast.
    """
    found = [np.zeros(0, np.int64)]
    right, also = np.empty(_CHUNK, np.bool_), np.empty(_CHUNK, np.bool_)
    for start in range(0, end, _CHUNK):
        size = min(_CHUNK, end - start)
        (distance, byte), *others = wanted
        np.equal(looked_at[start + distance : start + distance + size], byte, out=right[:size])
        for distance, byte in others:
            np.equal(looked_at[start + distance : start + distance + size], byte, out=also[:size])
            np.logical_and(right[:size], also[:size], out=right[:size])
        found.append(np.flatnonzero(right[:size]) + start)
    return np.concatenate(found)
