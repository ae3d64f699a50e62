"""BM25 over the Python files of a tree, as in CodeGrep's evaluation (arXiv 2608.05886, App. E)."""

from __future__ import annotations

import re
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codegrep.index.okapi import Okapi
from codegrep.index.terms import term_id
from codegrep.issues.issue import Issue
from codegrep.retrievers.files import FileState, ranked_files
from codegrep.retrievers.retriever import DEPTH, Retrieved, array_bytes

# The paper's list, and git's own folder.
_DELETED = re.compile(r"[^a-zA-Z0-9_./\s]+")
_PATH_PARTS = re.compile(r"[/.]")


def tokenise(text: str) -> list[str]:
    """Tokens of a document or a query.

    Split at white space, delete characters outside [a-zA-Z0-9_./], lower-case, drop tokens of less than two characters
    and those that begin with "http". Deleting before splitting is the same, and faster.
    """
    words = _DELETED.sub("", text).lower().split()
    return [word for word in words if len(word) > 1 and not word.startswith("http")]


def tokenise_path(path: str) -> list[str]:
    """Tokens of a path for the path index: the whole path, and its parts cut at "/" and ".".

    Which tokens the paper takes is not stated (reconstructed): with its tokeniser alone a path would be one token.
    """
    return tokenise(path) + [part for part in tokenise(_PATH_PARTS.sub(" ", path)) if part != path.lower()]


TermCounts = tuple[NDArray[np.uint32], NDArray[np.int32]]
"""Ids of the distinct terms of a document, and how often each occurs."""


def term_counts(tokens: Sequence[str]) -> TermCounts:
    """Count the tokens of a document."""
    counted = Counter(tokens)
    return np.fromiter(map(term_id, counted), np.uint32, len(counted)), np.array(list(counted.values()), np.int32)


def okapi_of(documents: Sequence[TermCounts]) -> Okapi:
    """BM25 of documents in insertion order, which decides ties."""
    terms = np.concatenate([np.zeros(0, np.uint32), *(ids for ids, _ in documents)])
    counts = np.concatenate([np.zeros(0, np.int32), *(counts for _, counts in documents)])
    rows = np.repeat(np.arange(len(documents)), [len(ids) for ids, _ in documents])
    return Okapi(terms, rows, counts, len(documents))


@dataclass(frozen=True)
class TreeIndex:
    """What one tree is ranked with.

    Attributes:
        files: (N,) repo-relative paths, in insertion order.
        content: index over contents.
        paths: index over path tokens, None where they have no weight.
        seconds: wall time of building it.
    """

    files: tuple[str, ...]
    content: Okapi
    paths: Okapi | None
    seconds: float


class TreeIndexer:
    """Builds indexes of trees and keeps what it can use again. Not for several threads at once.

    Commits of one repository share most of their files, so the term counts of a file are kept by its content; an index
    is kept as long as no file of its tree changes. Retrievers that share an indexer share both.

    Args:
        max_entries: (term, document) pairs kept, 8 bytes each; beyond that all are dropped.
        max_indexes: indexes kept, the longest unused one is dropped first.
    """

    def __init__(self, max_entries: int = 20_000_000, max_indexes: int = 4) -> None:
        self._max_entries = max_entries
        self._max_indexes = max_indexes
        self._documents: dict[bytes, TermCounts] = {}
        self._entries = 0
        self._indexes: OrderedDict[tuple[Path, bool, bool], tuple[tuple[FileState, ...], TreeIndex]] = OrderedDict()

    def index(self, tree: Path, *, include_tests: bool, with_paths: bool) -> TreeIndex:
        """Index of the Python files of `tree`, a kept one where no file has changed since.

        Raises:
            RepositoryError: there is no such folder.
        """
        key = (tree, include_tests, with_paths)
        states = ranked_files(tree, include_tests=include_tests)
        kept = self._indexes.get(key)
        if kept is not None and kept[0] == states:
            self._indexes.move_to_end(key)
            return kept[1]
        index = self._build(tree, states, with_paths=with_paths)
        self._indexes[key] = (states, index)
        self._indexes.move_to_end(key)
        while len(self._indexes) > self._max_indexes:
            self._indexes.popitem(last=False)
        return index

    def _build(self, tree: Path, states: Sequence[FileState], *, with_paths: bool) -> TreeIndex:
        started = time.perf_counter()
        if self._entries > self._max_entries:
            self._documents, self._entries = {}, 0
        files: list[str] = []
        documents: list[TermCounts] = []
        for state in states:
            try:
                content = (tree / state.path).read_bytes()
            except OSError:
                continue  # gone or unreadable: nothing that a search could find either
            files.append(state.path)
            documents.append(self._counts(content))
        paths = okapi_of([term_counts(tokenise_path(path)) for path in files]) if with_paths else None
        return TreeIndex(tuple(files), okapi_of(documents), paths, time.perf_counter() - started)

    def _counts(self, content: bytes) -> TermCounts:
        digest = sha1(content, usedforsecurity=False).digest()
        document = self._documents.get(digest)
        if document is None:
            document = term_counts(tokenise(content.decode("utf-8", errors="replace")))
            self._documents[digest] = document
            self._entries += len(document[0])
        return document


class BM25:
    """BM25 Okapi, top K files; a Retriever.

    The query is the whole statement of the issue. Files are inserted in the order of their paths, which decides ties.
    Only files with a score that is not 0 are given, so there may be fewer than top_k; an issue or a tree without words
    gives none. The paper gives 2, which was chosen near CodeGrep's own mean of 1.31.

    Args:
        include_tests: test files are documents (the paper's default). False leaves them out of the index, and so of the
            term statistics.
        path_weight: weight of a second index over path tokens. 2 is the paper's variant B, whose numbers it gives; 0
            ranks by content alone. The paper sees no effect of it. With the path tokens chosen here the variant is the
            stronger baseline where test files are left out.
        top_k: files given.
        indexer: shared by retrievers that rank the same trees; None is that of the process.

    Raises:
        ValueError: top_k is not positive or path_weight is negative.
    """

    def __init__(
        self,
        include_tests: bool = True,
        path_weight: float = 2.0,
        top_k: int = DEPTH,
        indexer: TreeIndexer | None = None,
    ) -> None:
        if top_k < 1 or path_weight < 0:
            raise ValueError(f"top_k must be positive and path_weight not negative, got {top_k} and {path_weight}")
        self.top_k = top_k
        self.include_tests = include_tests
        self.path_weight = path_weight
        self.indexer = indexer or _shared_indexer()

    def retrieve(self, issue: Issue, tree: Path) -> Retrieved:
        """Rank the Python files of `tree`; seconds is the query alone. See `Retriever.retrieve`."""
        index = self.indexer.index(tree, include_tests=self.include_tests, with_paths=self.path_weight > 0)
        started = time.perf_counter()
        ranked = self._rank(issue.problem_statement, index)
        seconds = time.perf_counter() - started
        size = array_bytes(index.content, *([index.paths] if index.paths else []))
        detail = {"documents": float(len(index.files)), "index_seconds": index.seconds, "index_bytes": size}
        return Retrieved(ranked, seconds, detail)

    def _rank(self, text: str, index: TreeIndex) -> tuple[str, ...]:
        query = [term_id(token) for token in tokenise(text)]
        scores = index.content.score(query)
        if index.paths is not None:
            scores = scores + self.path_weight * index.paths.score(query)
        best = np.argsort(-scores, kind="stable")
        return tuple(index.files[document] for document in best[: self.top_k] if scores[document] != 0)


@cache
def _shared_indexer() -> TreeIndexer:
    return TreeIndexer()
