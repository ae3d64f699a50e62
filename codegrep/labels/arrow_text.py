"""Single values of a large Arrow text column, read from its buffers without making Python objects of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class TextColumn:
    """Values of one text array by position; broken UTF-8 becomes U+FFFD, null becomes ""."""

    def __init__(self, array: pa.Array) -> None:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            array = pc.cast(array, pa.string())
        wide = pa.types.is_large_string(array.type)
        _, ends, data = array.buffers()
        kind = np.int64 if wide else np.int32
        none = np.zeros(len(array) + 1, dtype=kind)
        self._offsets = np.frombuffer(ends, dtype=kind)[array.offset : array.offset + len(array) + 1] if ends else none
        self._data = memoryview(data) if data is not None else memoryview(b"")
        self._null: Any = None
        if array.null_count:
            self._null = array.is_null().to_numpy(zero_copy_only=False)

    def text(self, position: int) -> str:
        """Return the whole value."""
        if self._null is not None and self._null[position]:
            return ""
        return str(self._data[self._offsets[position] : self._offsets[position + 1]], "utf-8", "replace")

    def head(self, position: int, characters: int) -> str:
        """Return the first characters of the value."""
        if self._null is not None and self._null[position]:
            return ""
        start, end = int(self._offsets[position]), int(self._offsets[position + 1])
        # A character has four bytes at most; the one that the cut may halve is beyond the characters asked for.
        return str(self._data[start : min(end, start + 4 * characters)], "utf-8", "replace")[:characters]

    def starts_with(self, word: str, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the values at `positions` begin with an ASCII word."""
        letters = np.frombuffer(word.encode("ascii"), dtype=np.uint8)
        starts = self._offsets[positions].astype(np.int64)
        ends = self._offsets[positions + 1].astype(np.int64)
        found: NDArray[np.bool_] = ends - starts >= len(letters)
        data = np.frombuffer(self._data, dtype=np.uint8)
        sure = starts[found]
        found[found] = (data[sure[:, None] + np.arange(len(letters))] == letters).all(axis=1)
        if self._null is not None:
            found &= ~self._null[positions]
        return found
