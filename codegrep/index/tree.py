"""The index of one tree, put together from what is known about its blobs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codegrep.errors import RepositoryError
from codegrep.index.languages import language_of
from codegrep.index.okapi import Okapi
from codegrep.index.static import StaticModel, Vectors, normalised
from codegrep.index.store import BlobStore, BlobUnits
from codegrep.index.terms import count_terms
from codegrep.index.units import MAX_PARSED

SKIPPED_FOLDERS = frozenset({"__pycache__", "venv", ".venv", "env", "build", "dist", ".eggs", ".git", "node_modules"})
# Text that holds data.
_DATA_SUFFIXES = (".csv", ".tsv", ".json", ".svg", ".lock", ".po", ".pot", ".map", ".min.js", ".min.css", ".ipynb")
_PATH_COUNT = 3  # a word of the path counts as often in BM25


@dataclass(frozen=True)
class IndexedUnit:
    """A unit as a search gives it; see `codegrep.index.units.Unit`."""

    path: str
    name: str
    kind: str
    start: int
    end: int
    signature: str
    docstring: str


@dataclass(frozen=True)
class SourceFile:
    """A file of a tree. key: of its blob; read: gives the content, maybe None where it is gone."""

    path: str
    blob: str
    read: Callable[[], bytes]

    @property
    def key(self) -> str:
        """Of what the index keeps: the same content in another language has other units."""
        return f"{self.blob}:{language_of(self.path)}"


class TreeIndex:
    """Units of a tree with their words and vectors.

    Args:
        files: (path, units) in the order of their paths.
        model: that embedded the units.
    """

    def __init__(self, files: Iterable[tuple[str, BlobUnits]], model: StaticModel) -> None:
        known = sorted(((path, blob) for path, blob in files if blob.meta), key=lambda item: item[0])
        self.model = model
        self.paths = [path for path, _ in known]
        self._blobs = [blob for _, blob in known]
        sizes = np.array([len(blob.meta) for blob in self._blobs], np.int64)
        self.file_of: NDArray[np.int64] = np.repeat(np.arange(len(known)), sizes)
        self.first_unit = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._path_words = count_terms(self.paths)
        self._defined: dict[int, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self.file_of)

    def unit(self, number: int) -> IndexedUnit:
        """Return the unit of a number."""
        file = int(self.file_of[number])
        meta = self._blobs[file].meta[number - int(self.first_unit[file])]
        return IndexedUnit(self.paths[file], meta[1], meta[0], *meta[2:])

    @cached_property
    def words(self) -> Okapi:
        """BM25 of the units; the words of a path count _PATH_COUNT times in each of its units."""
        return self._okapi(np.arange(len(self)), self.file_of)

    @cached_property
    def file_words(self) -> Okapi:
        """BM25 of whole files; the words of a path count _PATH_COUNT times."""
        return self._okapi(self.file_of, np.arange(len(self.paths)))

    def _okapi(self, document_of: NDArray[np.int64], file_of: NDArray[np.int64]) -> Okapi:
        """document_of: the document of each unit; file_of: the file of each document."""
        in_path = np.diff(self._path_words.starts)[file_of]
        first = np.repeat(self._path_words.starts[file_of] - (np.cumsum(in_path) - in_path), in_path)
        path_terms = self._path_words.terms[first + np.arange(in_path.sum())]
        sizes = _joined([np.diff(blob.words.starts) for blob in self._blobs], np.int64)
        terms = _joined([*(blob.words.terms for blob in self._blobs), path_terms], np.uint32)
        counts = [*(blob.words.counts for blob in self._blobs), np.full(len(path_terms), _PATH_COUNT, np.uint16)]
        documents = [np.repeat(document_of, sizes), np.repeat(np.arange(len(file_of)), in_path)]
        return Okapi(terms, np.concatenate(documents), np.concatenate(counts), len(file_of))

    @cached_property
    def vectors(self) -> Vectors:
        """(n, D) unit vectors of the units, paths included."""
        if not len(self):
            return np.zeros((0, self.model.dimension), np.float32)
        sums = np.concatenate([blob.vectors for blob in self._blobs]).astype(np.float32)
        return normalised(sums + self.model.embed(self._path_words)[self.file_of])

    @cached_property
    def definitions(self) -> Mapping[str, NDArray[np.int64]]:
        """Files that define a name, by the last part of the qualified one."""
        files: dict[str, list[int]] = {}
        for file in range(len(self.paths)):
            for name in self.defined_in(file):
                files.setdefault(name, []).append(file)
        return {name: np.array(numbers) for name, numbers in files.items()}

    def defined_in(self, file: int) -> frozenset[str]:
        """Names that a file defines, each by its last part."""
        names = self._defined.get(file)
        if names is None:
            names = frozenset(meta[1].rpartition(".")[2] for meta in self._blobs[file].meta if meta[1])
            self._defined[file] = names
        return names

    def best_of_files(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """(files,) the highest score of each file's units."""
        return np.maximum.reduceat(scores, self.first_unit[:-1]) if len(self) else np.zeros(0)

    def mean_of_best(self, scores: NDArray[np.floating], most: int) -> NDArray[np.floating]:
        """(files,) mean of the `most` highest scores of each file's units, of fewer where it has fewer."""
        if not len(self):
            return np.zeros(0)
        left, sums = scores.copy(), np.zeros(len(self.paths))
        for _ in range(most):
            best = self.best_of_files(left)
            sums += np.where(best > -np.inf, best, 0)
            places = np.flatnonzero(left == best[self.file_of])
            left[places[np.diff(self.file_of[places], prepend=-1) != 0]] = -np.inf  # the first of each file
        return np.asarray(sums / np.minimum(np.diff(self.first_unit), most))

    def chosen(self, path: str | None) -> NDArray[np.bool_]:
        """(files,) which of them lie under a folder, are the file, or match a glob; all without a path."""
        if path is None or path.strip("./") == "":
            return np.ones(len(self.paths), bool)
        wanted = path.removeprefix("./").rstrip("/")
        under = wanted + "/"
        return np.array(
            [name == wanted or name.startswith(under) or fnmatch(name, wanted) for name in self.paths], bool
        )


class TreeIndexer:
    """Indexes trees of repositories; what it knows of a blob is kept in a folder. Not for several threads at once.

    Args:
        folder: of the index files.
        model: static model that embeds the units.
        max_repositories: repositories whose blobs stay in memory.
    """

    def __init__(self, folder: Path, model: StaticModel, max_repositories: int = 4) -> None:
        self._folder = folder
        self._model = model
        self._max_repositories = max_repositories
        self._stores: dict[str, BlobStore] = {}

    def index(self, repo: str, files: Iterable[SourceFile]) -> TreeIndex:
        """Index a tree.

        Args:
            repo: "owner/name"; trees of one repository share their blobs.
            files: of the tree.

        Raises:
            DataError: an index file cannot be read, or written.
        """
        store = self._store(repo)
        listed = list(files)
        store.learn({file.key: (file.path, file.read) for file in listed if file.key not in store})
        return TreeIndex(((file.path, store[file.key]) for file in listed), self._model)

    def _store(self, repo: str) -> BlobStore:
        store = self._stores.pop(repo, None) or BlobStore(self._folder / repo.replace("/", "__"), self._model)
        self._stores[repo] = store
        while len(self._stores) > self._max_repositories:
            del self._stores[next(iter(self._stores))]
        return store


def folder_files(root: Path) -> list[SourceFile]:
    """Text files of a folder, with the blob hashes that git gives or would give them; links are left out.

    Raises:
        RepositoryError: there is no such folder.
    """
    if not root.is_dir():
        raise RepositoryError(f"there is no folder {root}", "Prepare the repositories again")
    return [source_file(root, path) for path in sorted(path for path, _ in walk(root) if is_indexed(path))]


def is_indexed(path: str) -> bool:
    """Whether files of this name are indexed: none of data."""
    return not path.lower().endswith(_DATA_SUFFIXES)


def walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the regular files below a folder with their paths, without SKIPPED_FOLDERS; links are left out."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED_FOLDERS:
                        pending.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry


def source_file(root: Path, path: str) -> SourceFile:
    """Return a file as it is on the disk, keyed by the blob hash that git would give it."""
    try:
        content = (root / path).read_bytes()
    except OSError:
        content = b""  # gone or unreadable: nothing that a search could find
    digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    bounded = content[: MAX_PARSED + 1]
    return SourceFile(path, digest.hexdigest(), lambda: bounded)


def _joined(arrays: list[NDArray], kind: type) -> NDArray:  # type: ignore[type-arg]
    return np.concatenate(arrays) if arrays else np.zeros(0, kind)
