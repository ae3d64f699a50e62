"""The indexes of codegrep.index as retrievers of files."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codegrep.errors import ConfigError
from codegrep.index import fusion, static
from codegrep.index.search import INDEXES
from codegrep.index.static import load_static
from codegrep.index.tree import TreeIndex, TreeIndexer, source_file
from codegrep.issues.issue import Issue
from codegrep.retrievers.files import FileState, ranked_files
from codegrep.retrievers.retriever import DEPTH, Retrieved, array_bytes
from codegrep.runtime.artifacts import file_content

_KEPT = 2  # trees
_latest: OrderedDict[tuple[Path, Path, tuple[FileState, ...]], IndexedTree] = OrderedDict()


class Indexed:
    """Ranks files by their best units in an index of codegrep.index.search; a Retriever.

    Args:
        index: "bm25", "static", "reciprocal" or "hybrid".
        include_tests: test files too.
        suffixes: of the files that are ranked.
        folder: where the parts of indexes are kept, by blob.

    Raises:
        ConfigError: there is no such index.
    """

    def __init__(
        self, index: str, include_tests: bool = False, suffixes: Sequence[str] = (".py",), *, folder: Path
    ) -> None:
        if index not in INDEXES:
            raise ConfigError(f"there is no index {index!r}", f"Known: {', '.join(INDEXES)}")
        self._kind = INDEXES[index]
        self._include_tests, self._suffixes = include_tests, tuple(suffixes)
        self._folder = folder

    def identity(self) -> str:
        """Name the vectors and weights that ship with the package."""
        return shipped_index()

    def retrieve(self, issue: Issue, tree: Path) -> Retrieved:
        """Rank files; seconds is the query alone. See `Retriever.retrieve`."""
        files = ranked_files(tree, include_tests=self._include_tests, suffixes=self._suffixes)
        known = indexed_tree(self._folder, issue.repo, tree, files)
        indexed, seconds = known.index, known.seconds
        search = self._kind(indexed)
        started = time.perf_counter()
        ranked = tuple(path for path, _ in search.rank_files(issue.problem_statement, DEPTH))
        return Retrieved(
            ranked,
            time.perf_counter() - started,
            {"documents": float(len(indexed)), "index_seconds": seconds, "index_bytes": _size(indexed)},
        )


def shipped_index() -> str:
    """Name the vectors and weights that ship with the package, for fingerprints of what is found with them."""
    return f"{file_content(static.SHIPPED)[:16]}-{file_content(fusion.SHIPPED)[:16]}"


@dataclass(frozen=True)
class IndexedTree:
    """The index of a tree, the blob of each of its files, and the wall time of building it."""

    index: TreeIndex
    blobs: Mapping[str, str]
    seconds: float


def indexed_tree(folder: Path, repo: str, tree: Path, files: tuple[FileState, ...]) -> IndexedTree:
    """Index files of a tree. The latest trees are kept, so that retrievers of one process build an index once.

    Args:
        folder: where the parts of indexes are kept, by blob.
        repo: "owner/name".
        tree: folder of the files.
        files: of `ranked_files`.

    Raises:
        DataError: the folder cannot be read or written.
    """
    key = (folder, tree, files)
    if key not in _latest:
        started = time.perf_counter()
        sources = [source_file(tree, file.path) for file in files]
        built = _indexer(folder).index(repo, sources)
        if len(built):  # what an index makes on demand counts as building it
            _ = built.words, built.file_words, built.vectors, built.definitions
        blobs = {source.path: source.blob for source in sources}
        _latest[key] = IndexedTree(built, blobs, time.perf_counter() - started)
        while len(_latest) > _KEPT:
            _latest.popitem(last=False)
    return _latest[key]


@cache
def _indexer(folder: Path) -> TreeIndexer:
    return TreeIndexer(folder, load_static())


def _size(tree: TreeIndex) -> float:
    return array_bytes(tree, *((tree.words, tree.file_words) if len(tree) else ()))
