"""Okapi BM25 as rank_bm25 defines it, in a bm25s index built from cached term counts.

bm25s scores eagerly: index[t, d] = idf(t)·tfc(t, d), and the score of d is the sum over the tokens of the query,
repeated ones included. Of its methods, "atire" has Okapi's term part tf·(k1+1) / (tf + k1·(1-b+b·|d|/avg|d|)), and
"robertson" its idf ln((N-n+0.5)/(n+0.5)), but cut at 0 for terms in more than half of the documents. rank_bm25 gives
such terms epsilon times the mean idf of the vocabulary instead. The two differ only in these very frequent terms. So
that the numbers are those of CodeGrep's baseline (arXiv 2608.05886, App. E: rank_bm25 with k1 1.5, b 0.75, and that
library's epsilon 0.25), the index is filled here with Okapi's own idf; everything else is bm25s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import bm25s
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TermCounts:
    """Bag of words of one document.

    Attributes:
        ids: (u,) int32 ids of its distinct terms.
        counts: (u,) int32 how often each occurs.
        length: tokens of the document, sum of counts.
    """

    ids: NDArray[np.int32]
    counts: NDArray[np.int32]
    length: int


class OkapiIndex(bm25s.BM25):
    """A bm25s index with rank_bm25's idf, in float64 so that equal documents have equal scores.

    Args:
        documents: in insertion order, which decides ties.
        vocabulary: id of every term; may hold terms that no document here has.
        k1, b: Okapi's parameters.
        epsilon: share of the mean idf that terms with a negative idf get.
    """

    def __init__(
        self,
        documents: Sequence[TermCounts],
        vocabulary: Mapping[str, int],
        k1: float = 1.5,
        b: float = 0.75,
        epsilon: float = 0.25,
    ) -> None:
        super().__init__(k1=k1, b=b, method="atire", idf_method="robertson", dtype="float64")
        self.epsilon = epsilon
        self.vocab_dict = vocabulary
        self.nonoccurrence_array = None
        self._documents = len(documents)
        self._size = 0
        self.scores = self._fill(documents)

    def score_all(self, query: Sequence[str]) -> Floats:
        """(N,) score of every document; 0 for a query without a known term."""
        known = [
            term for term in self.get_tokens_ids(list(query)) if term < self._size
        ]  # the shared vocabulary goes on growing
        if not known:
            return np.zeros(self._documents)  # bm25s refuses an index without terms
        scores: Floats = self.get_scores_from_ids(known)
        return scores

    def _fill(self, documents: Sequence[TermCounts]) -> dict[str, object]:
        count = len(documents)
        terms = _joined([document.ids for document in documents])
        frequencies = _joined([document.counts for document in documents]).astype(np.float64)
        rows = np.repeat(np.arange(count, dtype=np.int32), [len(document.ids) for document in documents])
        lengths = np.array([document.length for document in documents], dtype=np.float64)
        size = int(terms.max(initial=-1)) + 1
        self._size = size
        # Nothing is divided by a mean length of 0: without tokens there are no entries.
        relative = (lengths / (lengths.mean() or 1.0))[rows] if count else frequencies
        saturation = frequencies + self.k1 * (1 - self.b + self.b * relative)
        entries = self._idf(terms, size, count)[terms] * frequencies * (self.k1 + 1) / saturation
        order = np.argsort(terms, kind="stable")
        indptr = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(terms, minlength=size), out=indptr[1:])
        return {"data": entries[order], "indices": rows[order], "indptr": indptr, "num_docs": count}

    def _idf(self, terms: NDArray[np.int32], size: int, count: int) -> Floats:
        """(size,) idf of every term; terms that no document has are no part of the mean."""
        document_frequency = np.bincount(terms, minlength=size).astype(np.float64)
        idf: Floats = np.log(count - document_frequency + 0.5) - np.log(document_frequency + 0.5)
        present = document_frequency > 0
        if present.any():
            idf[idf < 0] = self.epsilon * idf[present].mean()
        return idf


def count_terms(tokens: Sequence[str], vocabulary: dict[str, int]) -> TermCounts:
    """Bag of words of a document; new terms are added to the vocabulary."""
    counted = Counter(tokens)
    ids = np.fromiter((vocabulary.setdefault(term, len(vocabulary)) for term in counted), np.int32, len(counted))
    return TermCounts(ids, np.fromiter(counted.values(), np.int32, len(counted)), len(tokens))


def _joined(arrays: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)
