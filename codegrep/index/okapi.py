"""Okapi BM25 as rank_bm25 defines it, over the term counts of documents.

score(d) = Σ_t idf(t)·tf·(k1+1) / (tf + k1·(1-b+b·|d|/avg|d|)) over the tokens t of the query, repeated ones included.
idf(t) = ln((N-n+0.5)/(n+0.5)); a term in more than half of the documents, whose idf is negative, has epsilon times the
mean idf of all terms instead. With k1 1.5, b 0.75 and epsilon 0.25 these are the numbers of CodeGrep's baseline
(arXiv 2608.05886, App. E).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_PACKED_COUNTS = 1 << 12


class Okapi:
    """An index in float64, so that equal documents have equal scores.

    Args:
        terms: (e,) uint32 id of the term of each entry.
        documents: (e,) document of each entry, from 0; an entry a term and document, or several, which are added.
        counts: (e,) how often the term occurs in it.
        size: number of documents.
        k1, b: Okapi's parameters.
        epsilon: share of the mean idf that terms with a negative idf get.
    """

    def __init__(
        self,
        terms: NDArray[np.uint32],
        documents: NDArray[np.integer],
        counts: NDArray[np.integer],
        size: int,
        k1: float = 1.5,
        b: float = 0.75,
        epsilon: float = 0.25,
    ) -> None:
        keys, counts = _sorted_entries(terms, documents, counts, size)
        first = np.flatnonzero(np.diff(keys, prepend=keys[:1] + np.uint64(1)))
        summed = np.add.reduceat(counts.astype(np.uint32), first) if len(keys) else np.zeros(0, np.uint32)
        self._counts = summed
        self._documents = (keys[first] & np.uint64(0xFFFFFFFF)).astype(np.int32)
        entry_terms = (keys[first] >> np.uint64(32)).astype(np.uint32)
        starts = np.flatnonzero(np.diff(entry_terms, prepend=entry_terms[:1] + np.uint32(1)))
        self._terms = entry_terms[starts]
        self._starts = np.append(starts, len(entry_terms))
        self._k1 = k1
        self.size = size
        frequencies = np.diff(self._starts).astype(np.float64)
        self._idf: Floats = np.log(size - frequencies + 0.5) - np.log(frequencies + 0.5)
        if len(self._idf):
            self._idf[self._idf < 0] = epsilon * self._idf.mean()
        lengths = np.bincount(self._documents, weights=self._counts, minlength=size)
        # Nothing is divided by a mean length of 0: without tokens there are no entries.
        self._saturation = k1 * (1 - b + b * lengths / ((lengths.mean() if size else 0.0) or 1.0))

    def score(self, query: Sequence[int] | NDArray[np.uint32], weights: Sequence[float] | None = None) -> Floats:
        """(size,) score of every document; 0 for a query without a known term. weights: of the query's tokens, or 1."""
        scores = np.zeros(self.size)
        k1 = self._k1
        for term, weight in _weighted(query, weights).items():
            position = int(np.searchsorted(self._terms, term))
            if position < len(self._terms) and self._terms[position] == term:
                entries = slice(self._starts[position], self._starts[position + 1])
                documents, counts = self._documents[entries], self._counts[entries].astype(np.float64)
                share = counts * (k1 + 1) / (counts + self._saturation[documents])
                scores[documents] += weight * self._idf[position] * share
        return scores

    def idf(self, term: int) -> float:
        """Return the idf of a term; that of a term that no document has, for others."""
        position = int(np.searchsorted(self._terms, term))
        if position < len(self._terms) and self._terms[position] == term:
            return float(self._idf[position])
        return float(np.log(self.size + 0.5) - np.log(0.5))


def _sorted_entries(
    terms: NDArray[np.uint32], documents: NDArray[np.integer], counts: NDArray[np.integer], size: int
) -> tuple[NDArray[np.uint64], NDArray[np.integer]]:
    """Entries as term << 32 | document, ascending, and their counts."""
    high = terms.astype(np.uint64) << np.uint64(32)
    if size <= 1 << 20 and int(counts.max(initial=0)) < _PACKED_COUNTS:  # an entry is one number: eight times as fast
        packed = high | (documents.astype(np.uint64) << np.uint64(12)) | counts.astype(np.uint64)
        packed.sort()
        low = np.uint64(0xFFFFFFFF)
        keys = (packed & ~low) | ((packed & low) >> np.uint64(12))
        return keys, (packed & np.uint64(0xFFF)).astype(np.uint16)
    keys = high | documents.astype(np.uint64)
    order = np.argsort(keys)
    return keys[order], counts[order]


def _weighted(query: Sequence[int] | NDArray[np.uint32], weights: Sequence[float] | None) -> dict[int, float]:
    summed: dict[int, float] = {}
    for position, term in enumerate(query):
        summed[int(term)] = summed.get(int(term), 0.0) + (1.0 if weights is None else weights[position])
    return summed
