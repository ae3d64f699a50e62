"""Key-value caches of running and of finished sequences.

`RowLayer` is one layer's cache of a batch whose rows come and go one by one. `PrefixStore` keeps the caches of finished
turns for the next turn of a rollout and for the other rollouts of its group.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers.cache_utils import CacheLayerMixin

GROWTH = 128


@dataclass(frozen=True)
class KeyValues:
    """Keys and values of one sequence: a pair for each layer, each (heads, tokens, width), without padding."""

    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @property
    def length(self) -> int:
        """Tokens held."""
        return self.layers[0][0].shape[1] if self.layers else 0

    @property
    def bytes(self) -> int:
        """Memory held."""
        return sum(t.numel() * t.element_size() for pair in self.layers for t in pair)

    def first(self, tokens: int) -> KeyValues:
        """Return those of the first tokens; shares memory."""
        return KeyValues(tuple((k[:, :tokens], v[:, :tokens]) for k, v in self.layers))


class RowLayer(CacheLayerMixin):
    """One layer's keys and values of a batch, (B, heads, capacity, width), with `length` tokens in use.

    It grows in steps of GROWTH tokens, so that new tokens are usually written in place.
    """

    is_sliding = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take the shapes of the first keys and values."""
        self.keys = key_states.new_zeros((*key_states.shape[:2], 0, key_states.shape[3]))
        self.values = value_states.new_zeros((*value_states.shape[:2], 0, value_states.shape[3]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values of new tokens; return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.reserve(end)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reserve(self, tokens: int) -> None:
        """Make room for a number of tokens in each row."""
        missing = tokens - self.keys.shape[2]
        if missing > 0:
            more = max(missing, GROWTH)
            self.keys = torch.nn.functional.pad(self.keys, (0, 0, 0, more))
            self.values = torch.nn.functional.pad(self.values, (0, 0, 0, more))

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (number of keys, offset)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Return the tokens of a row, padding included."""
        return self.length

    def get_max_length(self) -> int:
        """Return that there is no maximum."""
        return -1


def batch_layers(rows: Sequence[Sequence[tuple[KeyValues, int]]], length: int, room: int) -> list[RowLayer]:
    """Return the layers of a new batch.

    Args:
        rows: for each row its pieces and the position at which each ends (excluded).
        length: tokens of a row, padding with zeros included.
        room: further tokens to reserve.
    """
    first = next(piece for row in rows for piece, _ in row)
    layers = []
    for index, (k, v) in enumerate(first.layers):
        layer = RowLayer()
        layer.keys = k.new_zeros((len(rows), k.shape[0], length + room, k.shape[2]))
        layer.values = v.new_zeros((len(rows), v.shape[0], length + room, v.shape[2]))
        layer.length, layer.is_initialized = length, True
        for row, pieces in enumerate(rows):
            for piece, end in pieces:
                put(layer, row, piece.layers[index], end)
        layers.append(layer)
    return layers


def put(layer: RowLayer, row: int, pair: tuple[torch.Tensor, torch.Tensor], end: int) -> None:
    """Write one sequence into a row, ending at `end`."""
    begin = end - pair[0].shape[1]
    layer.keys[row, :, begin:end] = pair[0]
    layer.values[row, :, begin:end] = pair[1]


def take(layers: Sequence[RowLayer], row: int, spans: Sequence[tuple[int, int]]) -> KeyValues:
    """Copy and join the given (begin, end) spans of a row."""
    return KeyValues(
        tuple(
            (
                torch.cat([layer.keys[row, :, begin:end] for begin, end in spans], dim=1),
                torch.cat([layer.values[row, :, begin:end] for begin, end in spans], dim=1),
            )
            for layer in layers
        )
    )


class PrefixStore:
    """Keys and values of sequences that may be continued; the least recently used are dropped first.

    Args:
        max_bytes: memory bound; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = 0
        self._entries: OrderedDict[tuple[int, ...], tuple[np.ndarray, KeyValues]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, ids: Sequence[int], key_values: KeyValues) -> None:
        """Keep a sequence, in the place of entries that it continues."""
        key = tuple(ids[: key_values.length])
        if key_values.bytes > self._max_bytes or not key:
            return
        array = np.asarray(key, dtype=np.int64)
        for other, (other_array, _) in list(self._entries.items()):
            if len(other) <= len(key) and np.array_equal(other_array, array[: len(other)]):
                self._drop(other)
        self._entries[key] = (array, key_values)
        self._held += key_values.bytes
        while self._held > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def longest(self, ids: Sequence[int]) -> KeyValues | None:
        """Return those of the longest known prefix of a sequence without its last token, or None."""
        array = np.asarray(ids[:-1], dtype=np.int64)
        best, best_key = 0, None
        for key, (known, _) in self._entries.items():
            size = min(len(known), len(array))
            same = known[:size] == array[:size]
            shared = size if same.all() else int(same.argmin())
            if shared > best:
                best, best_key = shared, key
        if best_key is None:
            return None
        self._entries.move_to_end(best_key)
        return self._entries[best_key][1].first(best)

    def clear(self) -> None:
        """Drop everything."""
        self._entries.clear()
        self._held = 0

    def _drop(self, key: tuple[int, ...]) -> None:
        _, key_values = self._entries.pop(key)
        self._held -= key_values.bytes
