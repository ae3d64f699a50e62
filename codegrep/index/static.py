"""Static token embeddings: a text is the weighted sum of its words' vectors, so that embedding is one sparse product.

The model that ships is in data/static.npz; data/README.md tells how it was made (scripts/train_static.py).
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from codegrep.errors import ModelError
from codegrep.index.terms import Counts, count_terms, term_id

SHIPPED = Path(__file__).parent / "data" / "static.npz"
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class StaticModel:
    """Vectors of words by the ids of their terms.

    Attributes:
        terms: (V,) uint32, sorted.
        vectors: (V, D), of a word in a unit; its length is its weight.
        query_weights: (V,) what a word's vector is multiplied by in a query.
        version: hash of the file.
    """

    terms: NDArray[np.uint32]
    vectors: Vectors
    query_weights: Vectors
    version: str

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self.vectors.shape[1])

    def embed(self, texts: Counts) -> Vectors:
        """(n, D) sums of word vectors, not normalised. A word counts ln(1 + its count) times; unknown ones nothing."""
        columns, known = self._columns(texts.terms)
        data = np.where(known, np.log1p(texts.counts.astype(np.float32)), np.float32(0))
        matrix = csr_matrix((data, columns, texts.starts), shape=(len(texts.starts) - 1, len(self.terms)))
        return np.asarray(matrix @ self.vectors, dtype=np.float32)

    def embed_query(self, text: str) -> Vectors:
        """(D,) unit vector of a query; zero where it has no known word."""
        words = count_terms([text])
        columns, known = self._columns(words.terms)
        weights = np.log1p(words.counts.astype(np.float32)) * self.query_weights[columns] * known
        return normalised(weights @ self.vectors[columns])

    def _columns(self, terms: NDArray[np.uint32]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        columns = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        return columns, self.terms[columns] == terms


def normalised(vectors: Vectors) -> Vectors:
    """Vectors of length 1; zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)


@cache
def load_static(path: Path = SHIPPED) -> StaticModel:
    """Load a model that `save_static` wrote.

    Raises:
        ModelError: there is none, or it is no such file.
    """
    try:
        content = path.read_bytes()
        with np.load(path, allow_pickle=False) as arrays:
            words = arrays["words"].tobytes().decode("utf-8").split("\n")
            vectors = arrays["vectors"].astype(np.float32) * arrays["scales"].astype(np.float32)[:, None]
            query_weights = arrays["query_weights"].astype(np.float32)
    except FileNotFoundError:
        raise ModelError(f"there is no static model {path}", "Make one: python scripts/train_static.py") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path} is no static model: {' '.join(str(error).split())[:150]}", "Make it again") from error
    if not len(words) == len(vectors) == len(query_weights):
        raise ModelError(f"{path}: {len(words)} words, {len(vectors)} vectors, {len(query_weights)} weights")
    terms = np.array([term_id(word) for word in words], np.uint32)
    order = np.argsort(terms)
    version = hashlib.sha256(content).hexdigest()[:16]
    return StaticModel(terms[order], vectors[order], query_weights[order], version)


def save_static(path: Path, words: list[str], vectors: Vectors, query_weights: Vectors) -> None:
    """Write a model: vectors as int8 with a scale each, the words as text between line feeds."""
    scales = np.maximum(np.abs(vectors).max(axis=1), 1e-6) / 127
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        path,
        words=np.frombuffer("\n".join(words).encode("utf-8"), np.uint8),
        vectors=np.round(vectors / scales[:, None]).astype(np.int8),
        scales=scales.astype(np.float32),
        query_weights=query_weights.astype(np.float16),
    )
