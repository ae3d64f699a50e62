"""Terms of code and prose: words and identifiers, split where their parts meet, as 32-bit hashes."""

from __future__ import annotations

import re
import threading
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_IDENTIFIER = re.compile(r"\w+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[^\W_]+")  # of words with other letters than English ones
_MAX_TERM = 40
_MAX_KNOWN = 1 << 20


def split_identifier(identifier: str) -> tuple[str, ...]:
    """Parts of an identifier and, where there are several, the whole: parseURL_of gives parse, url, of, parseurl_of."""
    pattern = _PARTS if identifier.isascii() else _LETTERS
    parts = [part.lower() for part in pattern.findall(identifier[: 4 * _MAX_TERM])]
    words = [_singular(part[:_MAX_TERM]) for part in parts if len(part) > 1 or len(parts) == 1]
    if len(parts) > 1:
        words.append(identifier.lower()[:_MAX_TERM])
    return tuple(words)


def words_of(text: str) -> list[str]:
    """All words of a text: the parts of its identifiers, and compound identifiers as a whole, in lower case."""
    return [word for identifier in _IDENTIFIER.findall(text) for word in split_identifier(identifier)]


def term_id(word: str) -> int:
    """Stable 32-bit id of a word; among a hundred thousand words one pair or so shares an id."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Counts:
    """Words of several texts.

    Attributes:
        terms, counts: (e,) ids of the distinct words of each text and how often they occur, text after text.
        starts: (n + 1,) where each text begins.
    """

    terms: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    starts: NDArray[np.int64]

    def part(self, first: int, last: int) -> Counts:
        """Texts first to last - 1."""
        span = slice(self.starts[first], self.starts[last])
        return Counts(self.terms[span], self.counts[span], self.starts[first : last + 1] - self.starts[first])


def count_terms(texts: Iterable[str]) -> Counts:
    """Count the words of each text. Safe to use from several threads."""
    global _known
    if len(_known) > _MAX_KNOWN:
        _known = _Identifiers()
    known = _known
    numbers = array("I")
    lengths = array("q")
    for text in texts:
        before = len(numbers)
        numbers.extend(map(known.__getitem__, _IDENTIFIER.findall(text)))
        lengths.append(len(numbers) - before)
    identifiers = np.array(numbers, np.int64)
    with known.growing:
        first, known_words = np.array(known.starts, np.int64), np.array(known.words, np.uint64)
    sizes = np.diff(first)[identifiers]
    # Every identifier is replaced by its words: positions in the words of all identifiers.
    ends = np.cumsum(sizes)
    positions = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes - first[identifiers], sizes)
    rows = np.repeat(np.repeat(np.arange(len(lengths)), lengths), sizes)
    keys = (rows.astype(np.uint64) << np.uint64(32)) | known_words[positions]
    distinct, counts = np.unique(keys, return_counts=True)
    starts = np.searchsorted(distinct, np.arange(len(lengths) + 1, dtype=np.uint64) << np.uint64(32))
    terms = (distinct & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return Counts(terms, np.minimum(counts, 65_535).astype(np.uint16), starts.astype(np.int64))


def joined(parts: Sequence[Counts]) -> Counts:
    """Return the texts of several counts, one after another."""
    offsets = np.cumsum([0, *(len(part.terms) for part in parts)])
    starts = [part.starts[:-1] + offset for part, offset in zip(parts, offsets, strict=False)]
    return Counts(
        np.concatenate([part.terms for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([*starts, offsets[-1:]]),
    )


class _Identifiers(dict[str, int]):
    """Numbers of the identifiers met so far; words of number n are words[starts[n]:starts[n + 1]]."""

    def __init__(self) -> None:
        super().__init__()
        self.words = array("I")
        self.starts = array("q", [0])
        self.growing = threading.Lock()

    def __missing__(self, identifier: str) -> int:
        words = [term_id(word) for word in split_identifier(identifier)]
        with self.growing:
            if (number := self.get(identifier)) is None:
                self.words.extend(words)
                self.starts.append(len(self.words))
                number = self[identifier] = len(self)
            return number


_known = _Identifiers()


def _singular(word: str) -> str:
    """Return the word without the s of a plural or of a verb; class, status and this stay."""
    if len(word) > 3 and word.endswith("s") and word[-2] not in "sui":
        return word[:-1]
    return word
