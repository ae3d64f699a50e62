"""The indexes of codegrep.index as retrievers of files."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
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
        return f"{file_content(static.SHIPPED)[:16]}-{file_content(fusion.SHIPPED)[:16]}"

    def retrieve(self, issue: Issue, tree: Path) -> Retrieved:
        """Rank files; seconds is the query alone. See `Retriever.retrieve`."""
        files = ranked_files(tree, include_tests=self._include_tests, suffixes=self._suffixes)
        indexed, seconds = _trees(self._folder).index(issue.repo, tree, files)
        search = self._kind(indexed)
        started = time.perf_counter()
        ranked = tuple(path for path, _ in search.rank_files(issue.problem_statement, DEPTH))
        return Retrieved(
            ranked,
            time.perf_counter() - started,
            {"documents": float(len(indexed)), "index_seconds": seconds, "index_bytes": _size(indexed)},
        )


class _Trees:
    """Indexes of the latest trees. Retrievers of one process share them, so that a tree is indexed once for all."""

    def __init__(self, folder: Path, most: int = 2) -> None:
        self._indexer = TreeIndexer(folder, load_static())
        self._most = most
        self._known: OrderedDict[tuple[Path, tuple[FileState, ...]], tuple[TreeIndex, float]] = OrderedDict()

    def index(self, repo: str, tree: Path, files: tuple[FileState, ...]) -> tuple[TreeIndex, float]:
        """Return the index of these files and the wall time of building it."""
        key = (tree, files)
        if key not in self._known:
            started = time.perf_counter()
            built = self._indexer.index(repo, [source_file(tree, file.path) for file in files])
            if len(built):  # what an index makes on demand counts as building it
                _ = built.words, built.file_words, built.vectors, built.definitions
            self._known[key] = (built, time.perf_counter() - started)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return self._known[key]


def _size(tree: TreeIndex) -> float:
    return array_bytes(tree, *((tree.words, tree.file_words) if len(tree) else ()))


@cache
def _trees(folder: Path) -> _Trees:
    return _Trees(folder)
