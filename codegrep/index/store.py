"""What is known about file contents, kept in Arrow files by blob, so that a further commit adds only what changed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
from numpy.typing import NDArray

from codegrep.errors import DataError
from codegrep.index.digest import Meta, digest
from codegrep.index.static import StaticModel
from codegrep.index.terms import Counts

_VERSION = 1  # of the units and terms; other versions are other folders
_FLUSHED = 2_000  # blobs that a killed process loses at most
_MAX_SEGMENTS = 32
_META = ("kind", "name", "start", "end", "signature", "docstring")


@dataclass(frozen=True)
class BlobUnits:
    """The units of one blob, without what depends on its path.

    Attributes:
        meta: kind, name, start, end, signature, docstring of each unit.
        words: of each unit.
        vectors: (n, D) float16 sums of word vectors, not normalised.
    """

    meta: Sequence[Meta]
    words: Counts
    vectors: NDArray[np.float16]


def digest_files(files: Sequence[tuple[str, bytes]], model: StaticModel) -> list[BlobUnits]:
    """Divide files (path, content) into units, count their words and embed them."""
    divided, words = digest(files)
    vectors = model.embed(words).astype(np.float16)
    blobs = []
    first = 0
    for meta in divided:
        last = first + len(meta)
        blobs.append(BlobUnits(meta, words.part(first, last), vectors[first:last]))
        first = last
    return blobs


class BlobStore:
    """The blobs of one repository in a folder of Arrow files. Several processes may share the folder.

    A file is written under another name and renamed, so a killed process leaves whole files only.

    Args:
        folder: of all indexes; files of one model lie in a folder of their own.
        model: what embeds the units.

    Raises:
        DataError: a file of the folder cannot be read, or is of another model.
    """

    def __init__(self, folder: Path, model: StaticModel) -> None:
        self._folder = folder / f"{model.version}-{_VERSION}"
        self._dimension = model.dimension
        self._model = model
        self._blobs: dict[str, BlobUnits] = {}
        self._files = sorted(self._folder.glob("*.arrow"))
        for file in self._files:
            self._blobs.update(_read(file, self._dimension))
        self._join()

    def __getitem__(self, key: str) -> BlobUnits:
        return self._blobs[key]

    def __contains__(self, key: str) -> bool:
        return key in self._blobs

    def add(self, blobs: Mapping[str, BlobUnits]) -> None:
        """Keep further blobs, in memory and on disk."""
        if blobs:
            self._blobs.update(blobs)
            self._write(blobs)
            self._join()

    def learn(self, files: Mapping[str, tuple[str, Callable[[], bytes]]]) -> None:
        """Divide and keep the contents of files, some at a time.

        Args:
            files: path and a function that reads the content, by key.

        Raises:
            DataError: the index cannot be written.
        """
        keys = list(files)
        try:
            for first in range(0, len(keys), _FLUSHED):
                some = keys[first : first + _FLUSHED]
                blobs = digest_files([(files[key][0], files[key][1]()) for key in some], self._model)
                self.add(dict(zip(some, blobs, strict=True)))
        except OSError as error:
            raise DataError(f"the index cannot be written to {self._folder}: {error}") from error

    def keep(self, keys: Collection[str]) -> None:
        """Forget other blobs once they are more than the kept ones, in memory and, when files are joined, on disk."""
        if len(self._blobs) > 2 * len(keys) + _FLUSHED:
            self._blobs = {key: self._blobs[key] for key in keys}

    def _join(self) -> None:
        """Make one file of all, where there are many."""
        if len(self._files) > _MAX_SEGMENTS:
            old, self._files = self._files, []
            self._write(self._blobs)
            for file in old:
                file.unlink(missing_ok=True)

    def _write(self, blobs: Mapping[str, BlobUnits]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = uuid.uuid4().hex
        unfinished = self._folder / f"{name}.tmp"
        feather.write_feather(_table(blobs, self._dimension), str(unfinished), compression="lz4")
        self._files.append(unfinished.replace(self._folder / f"{name}.arrow"))


def _table(blobs: Mapping[str, BlobUnits], dimension: int) -> pa.Table:
    """One row a unit; a blob without units has a row of kind ""."""
    rows = [(key, *meta) for key, blob in blobs.items() for meta in (blob.meta or [("", "", 0, 0, "", "")])]
    lengths = [n for blob in blobs.values() for n in (np.diff(blob.words.starts) if blob.meta else [0])]
    vectors = [blob.vectors if blob.meta else np.zeros((1, dimension), np.float16) for blob in blobs.values()]
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    columns = dict(zip(("blob", *_META), zip(*rows, strict=True), strict=True))
    arrays = {name: pa.array(values) for name, values in columns.items()}
    for name in ("terms", "counts"):
        joined = np.concatenate([getattr(blob.words, name) for blob in blobs.values()])
        arrays[name] = pa.ListArray.from_arrays(offsets, pa.array(joined))
    flat = pa.array(np.concatenate(vectors).reshape(-1))
    arrays["vector"] = pa.FixedSizeListArray.from_arrays(flat, dimension)
    return pa.table(arrays)


def _read(file: Path, dimension: int) -> dict[str, BlobUnits]:
    try:
        table = feather.read_table(str(file)).combine_chunks()
        width = table.schema.field("vector").type.list_size
        if width != dimension:
            raise ValueError(f"vectors of {width} dimensions where the model has {dimension}")
        columns = [table[name].to_pylist() for name in ("blob", *_META)]
        vectors = _flat(table, "vector").to_numpy().reshape(-1, dimension)
        starts = np.append(0, np.cumsum(table["terms"].combine_chunks().value_lengths().to_numpy()))
        words = Counts(_flat(table, "terms").to_numpy(), _flat(table, "counts").to_numpy(), starts)
    except FileNotFoundError:
        return {}  # another process joined the files
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise DataError(f"index file {file} cannot be used: {error}", f"Remove {file.parent}") from error
    blobs: dict[str, BlobUnits] = {}
    keys, *meta = columns
    rows = list(zip(*meta, strict=True))
    first = 0
    for last in range(1, len(keys) + 1):
        if last == len(keys) or keys[last] != keys[first]:
            own = rows[first:last] if rows[first][0] else []
            end = first + len(own)
            blobs[keys[first]] = BlobUnits(own, words.part(first, end), vectors[first:end])
            first = last
    return blobs


def _flat(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks().flatten()
