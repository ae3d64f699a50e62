"""Vectors of units, kept in Arrow files by blob, so that a further commit embeds only what changed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from codegrep.errors import DataError

_MAX_SEGMENTS = 64
_SUFFIX = ".arrow"
Halves = NDArray[np.float16]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class FileVectors:
    """Vectors of one file's units, unit after unit.

    Attributes:
        sizes: (n,) vectors of each unit: one, or one a token.
        vectors: (sizes.sum(), D).
    """

    sizes: NDArray[np.int32]
    vectors: Halves


class VectorStore:
    """Vectors of the files of one repository, in memory-mapped files. Several processes may share the folder.

    A file is written under another name and renamed, so a killed process leaves whole files only.

    Args:
        folder: of this repository and model.
        identity: of the model and what it is given.
        dimension: of a vector.

    Raises:
        DataError: a file of the folder cannot be read, or is of another model.
    """

    def __init__(self, folder: Path, identity: str, dimension: int) -> None:
        self._folder = folder
        self._dimension = dimension
        self._about = {"identity": identity, "dimension": dimension}
        self._files: dict[str, FileVectors] = {}
        segments = sorted(folder.glob(f"*{_SUFFIX}"))
        for segment in segments:
            self._files.update(self._read(segment))
        if len(segments) > _MAX_SEGMENTS:
            self._write(self._files)
            for segment in segments:
                segment.unlink(missing_ok=True)

    def __contains__(self, key: str) -> bool:
        return key in self._files

    def __getitem__(self, key: str) -> FileVectors:
        return self._files[key]

    def add(self, files: Mapping[str, FileVectors]) -> None:
        """Keep further files, in memory and on disk.

        Raises:
            DataError: the folder cannot be written.
        """
        try:
            self._write(files)
        except OSError as error:
            raise DataError(f"the index {self._folder} cannot be written: {error}") from error
        self._files.update(files)

    def _write(self, files: Mapping[str, FileVectors]) -> None:
        columns = {
            "key": pa.array(list(files)),
            "sizes": _lists([one.sizes for one in files.values()], np.int32),
            "vectors": _lists([one.vectors.reshape(-1) for one in files.values()], np.float16),
        }
        table = pa.table(columns).replace_schema_metadata({"codegrep": json.dumps(self._about)})
        self._folder.mkdir(parents=True, exist_ok=True)
        name = uuid.uuid4().hex
        unfinished = self._folder / f"{name}.tmp"
        with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        unfinished.replace(self._folder / f"{name}{_SUFFIX}")

    def _read(self, segment: Path) -> dict[str, FileVectors]:
        try:
            table = pa.ipc.open_file(pa.memory_map(str(segment))).read_all()
            about = json.loads((table.schema.metadata or {}).get(b"codegrep", b"{}"))
            if about != self._about:
                raise ValueError(f"it is of {about}, the model is {self._about}")
            keys = table["key"].to_pylist()
            sizes = _arrays(table["sizes"])
            vectors = [one.reshape(-1, self._dimension) for one in _arrays(table["vectors"])]
            return {key: FileVectors(*parts) for key, *parts in zip(keys, sizes, vectors, strict=True)}
        except FileNotFoundError:
            return {}  # another process joined the files
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise DataError(f"index file {segment} cannot be used: {error}", f"Remove {segment.parent}") from error


def best_of_units(files: Iterable[FileVectors], query: Floats, chunk: int = 1 << 16) -> Floats:
    """Score units exactly by late interaction (ColBERT, Khattab and Zaharia 2020): Σ_q max_t q·t.

    With one vector a query and a unit this is their dot product.

    Args:
        files: of the tree, in the order of their units.
        query: (q, D).
        chunk: vectors that are multiplied at once.

    Returns:
        (units,) scores; -inf for a unit without vectors.
    """
    scores: list[Floats] = []
    waiting: list[FileVectors] = []
    rows = 0
    for file in files:
        waiting.append(file)
        rows += len(file.vectors)
        if rows >= chunk:
            scores.append(_scored(waiting, query))
            waiting, rows = [], 0
    return np.concatenate([*scores, _scored(waiting, query)])


def _scored(files: list[FileVectors], query: Floats) -> Floats:
    sizes = np.concatenate([np.zeros(0, np.int64), *(one.sizes for one in files)])
    scores = np.full(len(sizes), -np.inf, np.float32)
    filled = sizes > 0
    if filled.any():
        vectors = np.concatenate([one.vectors for one in files]).astype(np.float32)
        starts = (np.cumsum(sizes) - sizes)[filled]
        scores[filled] = np.maximum.reduceat(vectors @ query.T, starts.astype(np.intp), axis=0).sum(axis=1)
    return scores


def _lists(arrays: list[NDArray], kind: type) -> pa.Array:  # type: ignore[type-arg]
    offsets = np.cumsum([0, *map(len, arrays)])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets, pa.int64()), pa.array(np.concatenate([np.zeros(0, kind), *arrays]))
    )


def _arrays(column: pa.ChunkedArray) -> list[NDArray]:  # type: ignore[type-arg]
    """Return the lists of a column as views into the file."""
    found = []
    for part in column.chunks:
        flat, offsets = part.values.to_numpy(), part.offsets.to_numpy()
        found += [flat[first:last] for first, last in pairwise(offsets)]
    return found
