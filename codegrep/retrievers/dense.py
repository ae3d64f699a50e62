"""Embedding models as retrievers: one vector a unit (dense), or one a token (late interaction).

Models are those of sentence-transformers; torch and the library are imported with the first issue.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegrep.engines.model_folder import without_bars
from codegrep.engines.models import provide
from codegrep.errors import DataError, ModelError
from codegrep.index.search import Scores, TreeSearch
from codegrep.index.tree import TreeIndex
from codegrep.index.units import MAX_PARSED, Unit, units_of
from codegrep.issues.issue import Issue
from codegrep.retrievers.files import ranked_files
from codegrep.retrievers.indexed import IndexedTree, indexed_tree
from codegrep.retrievers.retriever import DEPTH, Retrieved
from codegrep.retrievers.vectors import FileVectors, Floats, VectorStore, best_of_units
from codegrep.runtime.artifacts import file_content

MAX_UNITS = 1_000_000
_VERSION = 1  # of the texts that units are embedded as
_FLUSHED = 512  # units that a killed process loses at most
_UNREAD = {".md", ".txt", ".png", ".gitattributes", ".gitignore"}


class EmbeddedIndex(TreeSearch):
    """Searches the units of a tree by a model's vectors; an Index.

    Args:
        tree: its units.
        files: the vectors of each file of the tree, in its order.
        embedded: embeds the query.
    """

    def __init__(self, tree: TreeIndex, files: Sequence[FileVectors], embedded: Embedded) -> None:
        super().__init__(tree)
        self.files = files
        self._embedded = embedded

    def scores(self, query: str, allowed: NDArray[np.bool_]) -> Scores:
        """See `TreeSearch.scores`."""
        return best_of_units(self.files, self._embedded.embed_query(query)).astype(np.float64)


class Embedded(ABC):
    """Ranks files by their best units under an embedding model; a Retriever.

    Args:
        model: a folder, a hub id (owner/name), or "provided:all-minilm-l6-v2".
        revision: of a hub id.
        query_prompt, document_prompt: before each text; None: the model's own.
        max_tokens: of a text; what is beyond is cut off. None: the model's own.
        batch: texts a forward pass.
        include_tests: test files too.
        suffixes: of the files that are ranked.
        folder: where vectors are kept, by model and blob.
    """

    runs_a_model = True

    def __init__(
        self,
        model: str,
        revision: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        max_tokens: int | None = None,
        batch: int = 32,
        include_tests: bool = False,
        suffixes: Sequence[str] = (".py",),
        *,
        folder: Path,
    ) -> None:
        self._name, self._revision = model, revision
        self._query_prompt, self._document_prompt = query_prompt, document_prompt
        self._max_tokens, self._batch = max_tokens, batch
        self._include_tests, self._suffixes = include_tests, tuple(suffixes)
        self._folder = folder
        self._stores: dict[str, VectorStore] = {}

    @abstractmethod
    def load(self, model: Path) -> Any:
        """Load the model; whatever the library raises becomes one line."""

    @abstractmethod
    def embed(self, texts: Sequence[str], *, query: bool) -> list[Floats]:
        """(t, D) vectors of length 1 of each text: one, or one a token."""

    def identity(self) -> str:
        """Hash of the model's files and of what decides the vectors of a unit.

        Raises:
            ModelError: the model is not there.
        """
        return self._identity

    def embed_query(self, text: str) -> Floats:
        """(q, D) vectors of a query."""
        return self.embed([text], query=True)[0]

    def retrieve(self, issue: Issue, tree: Path) -> Retrieved:
        """Rank files; seconds is the query alone, its embedding included. See `Retriever.retrieve`."""
        _ = self._dimension  # loads the model, which is no part of an index
        started = time.perf_counter()
        files = ranked_files(tree, include_tests=self._include_tests, suffixes=self._suffixes)
        indexed = indexed_tree(self._folder, issue.repo, tree, files)
        index = self.index(issue.repo, tree, indexed)
        ready = time.perf_counter()
        ranked = tuple(path for path, _ in index.rank_files(issue.problem_statement, DEPTH))
        size = float(sum(vectors.vectors.nbytes for vectors in index.files))
        detail = {"documents": float(len(indexed.index)), "index_seconds": ready - started, "index_bytes": size}
        return Retrieved(ranked, time.perf_counter() - ready, detail)

    def index(self, repo: str, tree: Path, indexed: IndexedTree) -> EmbeddedIndex:
        """Embed what is not kept yet, and put the index of the tree together.

        Raises:
            DataError: the tree has more than MAX_UNITS units, or kept vectors cannot be used.
        """
        if len(indexed.index) > MAX_UNITS:
            raise DataError(
                f"{repo} has {len(indexed.index):,} functions and classes; {MAX_UNITS:,} can be searched",
                "Rank fewer files: args.suffixes",
            )
        if repo not in self._stores:
            folder = self._folder / repo.replace("/", "__") / f"vectors-{self._identity}"
            self._stores = {repo: VectorStore(folder, self._identity, self._dimension)}
        store = self._stores[repo]
        keys = {path: f"{indexed.blobs[path]}:{path}" for path in indexed.index.paths}
        waiting: dict[str, list[Unit]] = {}
        for path, key in keys.items():
            if key not in store:
                waiting[key] = units_of(path, (tree / path).read_bytes()[: MAX_PARSED + 1])
                if sum(map(len, waiting.values())) >= _FLUSHED:
                    store.add(self._embedded(waiting))
                    waiting = {}
        if waiting:
            store.add(self._embedded(waiting))
        return EmbeddedIndex(indexed.index, [store[key] for key in keys.values()], self)

    def _embedded(self, files: dict[str, list[Unit]]) -> dict[str, FileVectors]:
        vectors = iter(self.embed([_text(unit) for units in files.values() for unit in units], query=False))
        found = {}
        for key, units in files.items():
            own = [next(vectors).astype(np.float16) for _ in units]
            found[key] = FileVectors(np.array([len(one) for one in own], np.int32), np.concatenate(own))
        return found

    @cached_property
    def _path(self) -> Path:
        return provide(self._name, revision=self._revision, chat=False)

    @cached_property
    def _identity(self) -> str:
        files = {
            path.relative_to(self._path).as_posix(): file_content(path)
            for path in sorted(self._path.rglob("*"))
            if path.is_file() and path.suffix not in _UNREAD
        }
        deciding = json.dumps([_VERSION, type(self).__name__, files, self._document_prompt, self._max_tokens])
        return hashlib.sha256(deciding.encode()).hexdigest()[:16]

    @cached_property
    def _model(self) -> Any:
        try:
            with without_bars():
                model = self.load(self._path)
        except Exception as error:  # the library raises a dozen types for one broken file
            text = " ".join(str(error).split())[:200]
            raise ModelError(f"model {self._name} cannot be loaded for embedding: {text}") from error
        if self._max_tokens is not None:
            model.max_seq_length = self._max_tokens
        return model

    def _encode(self, texts: Sequence[str], query: bool) -> Any:
        encode = self._model.encode_query if query else self._model.encode_document
        return encode(
            list(texts),
            prompt=self._query_prompt if query else self._document_prompt,
            batch_size=self._batch,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )

    @cached_property
    def _dimension(self) -> int:
        return int(self.embed(["dimension"], query=False)[0].shape[1])


class Dense(Embedded):
    """One vector a unit, of any sentence-transformers model; see `Embedded`."""

    def load(self, model: Path) -> Any:
        """See `Embedded.load`."""
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(model), trust_remote_code=False, local_files_only=True)

    def embed(self, texts: Sequence[str], *, query: bool) -> list[Floats]:
        """See `Embedded.embed`."""
        vectors = self._encode(texts, query)
        return list(np.asarray(vectors, np.float32)[:, None, :])


class LateInteraction(Embedded):
    """One vector a token, of a ColBERT-like model that sentence-transformers loads; see `Embedded`."""

    def load(self, model: Path) -> Any:
        """See `Embedded.load`."""
        from sentence_transformers import MultiVectorEncoder

        return MultiVectorEncoder(str(model), trust_remote_code=False, local_files_only=True)

    def embed(self, texts: Sequence[str], *, query: bool) -> list[Floats]:
        """See `Embedded.embed`."""
        return [np.asarray(one, np.float32) for one in self._encode(texts, query)]


def _text(unit: Unit) -> str:
    """Return what of a unit is embedded."""
    return f"{unit.path}\n{unit.name}\n{unit.body}"
