"""The search indexes of trees in one process, each built once, by the thread that is first asked for it."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from codegrep.index.colgrep import ColgrepIndex
from codegrep.index.search import INDEXES, Index, TreeSearch
from codegrep.index.static import load_static
from codegrep.index.tree import SourceFile, TreeIndexer, is_indexed, source_file, walk
from codegrep.issues.paths import is_test_path
from codegrep.sandbox.tools.pathglob import is_seen
from codegrep.sandbox.tree_state import tree_state
from codegrep.sandbox.worktree_metadata import registration_of

# Of all indexes that are kept, about 5 KB each.
_MOST_UNITS = 200_000
# One thread builds, the others look whether a tree is as it was.
_THREADS = 8


@dataclass(frozen=True)
class _Kept:
    """An index and the state of its tree (`TreeState.digest`) before it was built."""

    state: str
    index: Index

    @property
    def units(self) -> int:
        return len(self.index.tree) if isinstance(self.index, TreeSearch) else 0


class TreeIndexes:
    """Indexes of trees; what is known of a blob is kept in a folder and shared by all trees of its repository.

    Hidden files are not indexed.

    Args:
        folder: of the index files; several processes may share it. None: a temporary one.
        kind: a name of codegrep.index.search.INDEXES, or "colgrep".
        with_tests: index test files too.
        ripgrep: the program, for patterns.
    """

    def __init__(self, folder: Path | None, kind: str, *, with_tests: bool, ripgrep: str | None) -> None:
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="codegrep-index-")
        self._folder = folder or Path(self._temporary.name if self._temporary else "")
        self._kind, self._with_tests, self._ripgrep = kind, with_tests, ripgrep
        self._indexer: TreeIndexer | None = None
        self._kept: OrderedDict[Path, _Kept] = OrderedDict()
        self._pending: dict[Path, Future[Index]] = {}
        self._guard, self._building = threading.Lock(), threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="index")

    def of(self, root: Path) -> Future[Index]:
        """Return the index of the tree as it is now; callers at the same time share a future that none may cancel.

        The future raises DataError where an index file cannot be read or written, OSError where the tree is gone.
        """
        with self._guard:
            pending = self._pending.get(root)
            if pending is None:
                pending = self._pending[root] = self._threads.submit(self._current, root)
            return pending

    def _current(self, root: Path) -> Index:
        try:
            state = tree_state(root).digest
            with self._guard:
                kept = self._kept.pop(root, None)
            if kept is None or kept.state != state:
                with self._building:
                    kept = _Kept(state, self._build(root))
            with self._guard:
                self._kept[root] = kept
                while len(self._kept) > 1 and sum(one.units for one in self._kept.values()) > _MOST_UNITS:
                    self._kept.popitem(last=False)
            return kept.index
        finally:
            with self._guard:
                del self._pending[root]

    def _build(self, root: Path) -> Index:
        if self._kind == "colgrep":
            index: Index = ColgrepIndex(root, self._folder / "colgrep", with_tests=self._with_tests)
        else:
            self._indexer = self._indexer or TreeIndexer(self._folder, load_static())
            tree = self._indexer.index(_repository(root), self._files(root))
            index = INDEXES[self._kind](tree, root, self._ripgrep)
        index.search("first", 1)  # makes what is made when it is first needed
        return index

    def _files(self, root: Path) -> list[SourceFile]:
        paths = sorted(path for path, _ in walk(root) if is_indexed(path) and is_seen(path, []))
        return [source_file(root, path) for path in paths if self._with_tests or not is_test_path(path)]


def _repository(root: Path) -> str:
    """Return a name that trees of the same clone share; a folder that is no tree of a clone has its own."""
    registration = registration_of(root)
    if registration is not None:
        return registration.parents[1].name
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
