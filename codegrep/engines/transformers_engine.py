"""Generation in this process with a transformers model: for machines without vLLM, and for a trainer that owns the
model.

Calls of `generate` are gathered into one running batch that a worker thread decodes; a new request joins at the next
token, an ended one leaves, so rollouts that wait for their tools cost nothing and nobody waits for the slowest of a
batch.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from codegrep.engines.cpu.folded_attention import folded
from codegrep.engines.decoder import Decoder, Row
from codegrep.engines.engine import Generation, GenerationRequest
from codegrep.engines.key_values import PrefixStore
from codegrep.errors import CodegrepError, InfrastructureError


@dataclass(eq=False)
class _Waiting:
    """A request and who waits for it."""

    request: GenerationRequest
    row: Row
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Generation]


class TransformersEngine:
    """Engine over a transformers causal language model, or one wrapped by peft.

    The model is used as it is at each token: the owner must not train it while requests run, and raises
    `weights_version` after a change. What is kept of earlier prompts is dropped when the weights have changed in
    either way. The model's training flags, attention implementation and gradients are as before after every burst.

    At temperature 0, and with a seed, the same request gives the same tokens but for rounding: in bfloat16 the other
    rows of a batch, and a prompt's known beginning, change the last bits of the logits. A request alone, in a fresh
    engine, is exact.

    Args:
        model: owned by the caller.
        pad_id: any id of the vocabulary.
        stop_ids: ids that end a generation (ChatFormat.stop_ids).
        context: longest prompt + completion, tokens.
        max_batch: sequences generated together.
        max_wait_ms: how long a first request waits for others.
        prefix_gib: memory for keys and values of prompts and turns that may be continued; 0 turns the reuse off.
        seed: of the draws of requests without a seed.
    """

    def __init__(
        self,
        model: Any,
        *,
        pad_id: int,
        stop_ids: frozenset[int],
        context: int,
        max_batch: int,
        max_wait_ms: float = 5.0,
        prefix_gib: float = 1.0,
        seed: int = 0,
    ) -> None:
        self._model = model
        self._context = context
        self._max_batch = max_batch
        self._max_wait = max_wait_ms / 1000
        self._store = PrefixStore(int(prefix_gib * 2**30))
        self._decoder = Decoder(model, stop_ids, pad_id, self._store)
        self._draws = random.Random(seed)
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()
        # The number of threads belongs to the thread that set it (OpenMP): the decoding one has to be told.
        self._thread = ThreadPoolExecutor(
            max_workers=1,
            thread_name_prefix="transformers-engine",
            initializer=torch.set_num_threads,
            initargs=(torch.get_num_threads(),),
        )
        self._running = False
        self._closed = False
        self._seen_weights: tuple[int, int] | None = None
        self.weights_version = 0

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue one prompt; an empty generation with finish_reason "length" where the context has no room.

        Raises:
            InfrastructureError: the engine is closed, or the model failed.
        """
        if not request.prompt_ids:
            raise InfrastructureError("a prompt without tokens cannot be continued")
        room = min(request.sampling.max_tokens, self._context - len(request.prompt_ids))
        if room <= 0:
            return Generation((), (), "length", self.weights_version)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Generation] = loop.create_future()
        draws = random.Random(self._draws.getrandbits(64) if request.seed is None else request.seed)
        row = Row(tuple(request.prompt_ids), replace(request.sampling, max_tokens=room), draws, future.done)
        with self._lock:
            if self._closed:
                raise InfrastructureError("the engine is closed")
            self._waiting.append(_Waiting(request, row, loop, future))
            if not self._running:
                self._running = True
                self._thread.submit(self._burst)
        return await future

    async def close(self) -> None:
        """Fail what waits, wait for the token that is being computed, free the keys and values."""
        with self._lock:
            self._closed = True
        await asyncio.to_thread(self._thread.shutdown)
        self._store.clear()

    def _burst(self) -> None:
        """Decode until nobody waits any more. Runs in the worker thread."""
        taken: dict[Row, _Waiting] = {}
        ended: list[tuple[_Waiting, Generation]] = []
        try:
            time.sleep(self._max_wait)
            with self._ready_model():
                while self._take(taken):
                    for waiting, generation in ended:
                        _deliver(waiting, generation)
                    ended = self._advance(taken)
            # The last ones hear of it when the model is as it was: their owner may train it at once.
            for waiting, generation in ended:
                _deliver(waiting, generation)
        except BaseException as failure:
            cause = failure if isinstance(failure, CodegrepError) else _lost(failure)
            with self._lock:
                self._running = False
                everyone = [*taken.values(), *self._waiting]
                self._waiting.clear()
            self._decoder.reset()
            self._store.clear()
            for waiting, generation in ended:
                _deliver(waiting, generation)
            for waiting in everyone:
                _deliver(waiting, cause)

    def _take(self, taken: dict[Row, _Waiting]) -> bool:
        """Let new requests in; False ends the burst (under the lock, so that no request is missed)."""
        with self._lock:
            if self._closed:
                raise InfrastructureError("the engine was closed")
            while self._waiting and len(taken) < self._max_batch:
                waiting = self._waiting.popleft()
                if not waiting.future.done():
                    taken[waiting.row] = waiting
            self._running = bool(taken)
            return self._running

    def _advance(self, taken: dict[Row, _Waiting]) -> list[tuple[_Waiting, Generation]]:
        """Admit those that are new, then one token for all; gives back those that have ended."""
        new = [row for row in taken if not row.token_ids]
        ended = []
        if new:
            self._forget_old_weights()
            ended = self._decoder.admit(new)
        ended += self._decoder.step()
        for row in [row for row in taken if row.finish_reason == "abort"]:
            del taken[row]
        return [(taken.pop(row), row.generation(self.weights_version)) for row in ended]

    def _forget_old_weights(self) -> None:
        weights = (self.weights_version, _weights_counter(self._model))
        if weights != self._seen_weights:
            self._store.clear()
            self._seen_weights = weights

    @contextmanager
    def _ready_model(self) -> Iterator[None]:
        """The model in eval mode without gradients; every module's own training flag is put back."""
        training = [module for module in self._model.modules() if module.training]
        self._model.eval()
        try:
            with torch.no_grad(), folded(self._model):
                yield
        finally:
            for module in training:
                module.training = True


def _weights_counter(model: Any) -> int:
    """Grows with every change of a weight in place (optimiser steps, loading), which PyTorch counts itself."""
    return sum(tensor._version for tensor in itertools.chain(model.parameters(), model.buffers()))


def _lost(failure: BaseException) -> InfrastructureError:
    return InfrastructureError(f"the model failed while generating: {type(failure).__name__}: {str(failure)[:300]}")


def _deliver(waiting: _Waiting, outcome: Generation | CodegrepError) -> None:
    def set_outcome() -> None:
        if waiting.future.done():
            return
        if isinstance(outcome, Generation):
            waiting.future.set_result(outcome)
        else:
            waiting.future.set_exception(outcome)

    with suppress(RuntimeError):  # the loop is closed: nobody waits
        waiting.loop.call_soon_threadsafe(set_outcome)
