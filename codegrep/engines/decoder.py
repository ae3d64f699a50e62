"""Continuous batching with a transformers causal language model, token by token.

Rows are left-padded, so that a step appends one token to all of them. A row that ends gives its place to a new one; the
batch is laid out anew only if that does not fit. Prompts are prefilled together, equal prompts once, and from the
longest prefix in `PrefixStore`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from transformers.cache_utils import Cache

from codegrep.engines.engine import Generation, Sampling
from codegrep.engines.key_values import GROWTH, KeyValues, PrefixStore, RowLayer, batch_layers, put, take
from codegrep.engines.sampling import draw
from codegrep.errors import ModelError

PREFILL_TOKENS = 2048
SLACK = 256


@dataclass(eq=False)
class Row:
    """One sequence in generation.

    Attributes:
        prompt_ids: not empty.
        sampling: max_tokens is already cut to the context, > 0.
        draws: source of this row's uniform numbers.
        cancelled: called before every step; True drops the row.
        token_ids: sampled so far.
        logprobs: of token_ids, raw.
        finish_reason: None while it runs.
        length: tokens in the cache.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    draws: random.Random
    cancelled: Callable[[], bool] = lambda: False
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: Literal["stop", "length", "abort"] | None = None
    length: int = 0

    def generation(self, weights_version: int) -> Generation:
        """Return what was sampled."""
        return Generation(tuple(self.token_ids), tuple(self.logprobs), self.finish_reason or "abort", weights_version)


class Decoder:
    """A running batch. Not thread-safe; needs no_grad and the model in eval mode.

    Args:
        model: transformers causal language model, or one wrapped by PEFT.
        stop_ids: end a row; the sampled stop token is kept.
        pad_id: any id of the vocabulary.
        store: keys and values of prefixes.

    Raises:
        ModelError: a layer does not attend to all earlier tokens (sliding window, linear attention).
    """

    def __init__(self, model: Any, stop_ids: frozenset[int], pad_id: int, store: PrefixStore) -> None:
        config = model.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
        if kinds or not getattr(model, "_supports_sdpa", False):
            kind = ", ".join(sorted(kinds)) or "attention without SDPA"
            what = f"engine=transformers cannot run {config.model_type}: {kind}"
            raise ModelError(what, "Use a model with full attention")
        self._model = model
        self._stop_ids = stop_ids
        self._pad_id = pad_id
        self._store = store
        self._places: list[Row | None] = []
        self._layers: list[RowLayer] = []
        self._visible = torch.zeros((0, 0), dtype=torch.bool)

    @property
    def running(self) -> list[Row]:
        """Rows that have not ended."""
        return [row for row in self._places if row is not None]

    def reset(self) -> None:
        """Forget every row, after a failure."""
        self._places, self._layers = [], []

    def admit(self, rows: Sequence[Row]) -> list[Row]:
        """Prefill rows and sample their first token; return those that end with it."""
        waiting: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            waiting.setdefault(row.prompt_ids, []).append(row)
        ready = self._prefill(list(waiting))
        same = [(row, key_values) for ids, (key_values, _) in ready.items() for row in waiting[ids]]
        logits = torch.cat([logit.expand(len(waiting[ids]), -1) for ids, (_, logit) in ready.items()])
        for row, key_values in same:
            row.length = key_values.length
        for ids, (key_values, _) in ready.items():
            self._store.add(ids, key_values)
        self._draw([row for row, _ in same], logits)
        staying = [(row, key_values) for row, key_values in same if row.finish_reason is None]
        if staying:
            self._place(staying)
        return [row for row, _ in same if row.finish_reason is not None]

    def step(self) -> list[Row]:
        """Sample one token for every running row; return those that end."""
        self._drop_cancelled()
        if not self.running:
            return []
        position = self._layers[0].length
        self._see(position + 1)
        device = self._visible.device
        last = [row.token_ids[-1] if row is not None else self._pad_id for row in self._places]
        positions = [row.length if row is not None else 0 for row in self._places]
        self._visible[:, position] = True
        logits = self._forward(
            torch.tensor(last, device=device)[:, None],
            torch.tensor(positions, device=device)[:, None],
            self._visible[:, None, None, : position + 1],
            self._layers,
        )
        running = [(place, row) for place, row in enumerate(self._places) if row is not None]
        for _, row in running:
            row.length += 1
        self._draw([row for _, row in running], logits[[place for place, _ in running]])
        ended = [(place, row) for place, row in running if row.finish_reason is not None]
        for place, row in ended:
            key_values = take(self._layers, place, [(position + 1 - row.length, position + 1)])
            self._store.add([*row.prompt_ids, *row.token_ids], key_values)
        self._release([place for place, _ in ended])
        return [row for _, row in ended]

    def _drop_cancelled(self) -> None:
        dropped = [place for place, row in enumerate(self._places) if row is not None and row.cancelled()]
        for place in dropped:
            self._places[place].finish_reason = "abort"  # type: ignore[union-attr]
        self._release(dropped)

    def _draw(self, rows: Sequence[Row], logits: torch.Tensor) -> None:
        ids, logprobs = draw(logits, [row.sampling for row in rows], [row.draws.random() for row in rows])
        for row, token, logprob in zip(rows, ids, logprobs, strict=True):
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            if token in self._stop_ids:
                row.finish_reason = "stop"
            elif len(row.token_ids) >= row.sampling.max_tokens:
                row.finish_reason = "length"

    def _forward(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, layers: list[RowLayer]
    ) -> torch.Tensor:
        """Return (B, V) logits of the last position; layers are extended in place."""
        output = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=Cache(layers=list(layers)),
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _prefill(self, prompts: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], tuple[KeyValues, torch.Tensor]]:
        """Return keys and values of whole prompts, and (1, V) logits of their last position."""
        done: dict[tuple[int, ...], tuple[KeyValues, torch.Tensor]] = {}
        known = {ids: self._store.longest(ids) or KeyValues(()) for ids in prompts}
        while known:
            # Batch similar lengths, since padding is computed too.
            order = sorted(known, key=lambda ids: len(ids) - known[ids].length)
            width = min(len(order[0]) - known[order[0]].length, PREFILL_TOKENS)
            batch: list[tuple[int, ...]] = []
            for ids in order:
                size = min(len(ids) - known[ids].length, PREFILL_TOKENS)
                if batch and (max(width, size) * (len(batch) + 1) > PREFILL_TOKENS or size > 2 * width):
                    break
                batch.append(ids)
            for ids, (key_values, logits) in zip(batch, self._prefill_batch(batch, known), strict=True):
                if key_values.length == len(ids):
                    done[ids] = (key_values, logits)
                    del known[ids]
                else:
                    known[ids] = key_values
        return {ids: done[ids] for ids in prompts}

    def _prefill_batch(
        self, batch: Sequence[tuple[int, ...]], known: dict[tuple[int, ...], KeyValues]
    ) -> list[tuple[KeyValues, torch.Tensor]]:
        before = [known[ids].length for ids in batch]
        fresh = [ids[n : n + PREFILL_TOKENS] for ids, n in zip(batch, before, strict=True)]
        past, width = max(before), max(map(len, fresh))
        device = self._model.device
        ids = torch.full((len(batch), width), self._pad_id, device=device)
        positions = torch.zeros((len(batch), width), dtype=torch.long, device=device)
        visible = torch.zeros((len(batch), past + width), dtype=torch.bool, device=device)
        for row, (n, part) in enumerate(zip(before, fresh, strict=True)):
            begin = width - len(part)
            ids[row, begin:] = torch.tensor(part, device=device)
            positions[row, begin:] = torch.arange(n, n + len(part), device=device)
            visible[row, past - n : past] = True
            visible[row, past + begin :] = True
        causal = torch.ones((width, width), dtype=torch.bool, device=device).tril()
        mask = visible[:, None, None, :].repeat(1, 1, width, 1)
        mask[..., past:] &= causal
        # A padding position attends to itself; without any key its values would be NaN, and spread as 0 * NaN.
        mask[..., past:] |= torch.eye(width, dtype=torch.bool, device=device)
        if past:
            pieces = [[(known[i], past)] if known[i].length else [] for i in batch]
            layers = batch_layers(pieces, past, width)
        else:
            layers = [RowLayer() for _ in range(self._model.config.num_hidden_layers)]
        logits = self._forward(ids, positions, mask, layers)
        return [
            (take(layers, row, [(past - n, past), (past + width - len(part), past + width)]), logits[row : row + 1])
            for row, (n, part) in enumerate(zip(before, fresh, strict=True))
        ]

    def _place(self, rows: list[tuple[Row, KeyValues]]) -> None:
        """Give rows free places if they fit, else lay out the whole batch anew."""
        length = self._layers[0].length if self._layers else 0
        free = [place for place, row in enumerate(self._places) if row is None]
        longest = max(row.length for row, _ in rows)
        wasted = length - max([longest, *(row.length for row in self.running)])
        if len(rows) > len(free) or longest > length or wasted > SLACK:
            self._lay_out(rows)
            return
        for place, (row, key_values) in zip(free, rows, strict=False):
            self._places[place] = row
            self._visible[place, :length] = False
            self._visible[place, length - row.length : length] = True
            for layer, pair in zip(self._layers, key_values.layers, strict=True):
                put(layer, place, pair, length)

    def _lay_out(self, added: list[tuple[Row, KeyValues]]) -> None:
        end = self._layers[0].length if self._layers else 0
        staying = [
            (row, take(self._layers, place, [(end - row.length, end)]))
            for place, row in enumerate(self._places)
            if row is not None
        ]
        rows = [*staying, *added]
        length = max(row.length for row, _ in rows)
        self._layers = batch_layers([[(key_values, length)] for _, key_values in rows], length, GROWTH)
        self._places = [row for row, _ in rows]
        self._visible = torch.zeros((len(rows), length + GROWTH), dtype=torch.bool, device=self._layers[0].keys.device)
        for place, (row, _) in enumerate(rows):
            self._visible[place, length - row.length : length] = True

    def _release(self, places: Sequence[int]) -> None:
        for place in places:
            self._places[place] = None
        running = len(self.running)
        if running == 0:
            self._places, self._layers = [], []
        elif places and running * 2 <= len(self._places):
            # Empty places are computed too: close the gaps when they are many.
            self._lay_out([])

    def _see(self, length: int) -> None:
        missing = length - self._visible.shape[1]
        if missing > 0:
            self._visible = torch.nn.functional.pad(self._visible, (0, max(missing, GROWTH)))
