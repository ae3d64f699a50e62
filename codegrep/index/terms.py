"""Terms of code and prose: words and identifiers, split where their parts meet, as 32-bit hashes."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_IDENTIFIER = re.compile(r"\w+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[^\W_]+")  # of words with other letters than English ones
_MAX_TERM = 40


def words_of(text: str) -> Counter[str]:
    """Count the words of a text: the parts of its identifiers, and compound identifiers as a whole, in lower case."""
    counts: Counter[str] = Counter()
    for identifier, count in Counter(_IDENTIFIER.findall(text)).items():
        for word in split_identifier(identifier):
            counts[word] += count
    return counts


@lru_cache(maxsize=1 << 18)
def split_identifier(identifier: str) -> tuple[str, ...]:
    """Parts of an identifier and, where there are several, the whole: parseURL_of gives parse, url, of, parseurl_of."""
    pattern = _PARTS if identifier.isascii() else _LETTERS
    parts = [part.lower() for part in pattern.findall(identifier[: 4 * _MAX_TERM])]
    words = [_singular(part[:_MAX_TERM]) for part in parts if len(part) > 1 or len(parts) == 1]
    if len(parts) > 1:
        words.append(identifier.lower()[:_MAX_TERM])
    return tuple(words)


@lru_cache(maxsize=1 << 18)
def term_id(word: str) -> int:
    """Stable 32-bit id of a word; among a hundred thousand words one pair or so shares an id."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def term_ids(words: Counter[str]) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """(u,) ids and (u,) counts of counted words."""
    ids = np.fromiter(map(term_id, words), np.uint32, len(words))
    return ids, np.minimum(np.fromiter(words.values(), np.int64, len(words)), 65_535).astype(np.uint16)


def _singular(word: str) -> str:
    """The word without the s of a plural or of a verb; class, status and this stay."""
    if len(word) > 3 and word.endswith("s") and word[-2] not in "sui":
        return word[:-1]
    return word
