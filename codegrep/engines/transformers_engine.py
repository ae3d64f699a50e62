"""Generation in this process with a transformers model, for machines without vLLM and for the model in training.

A worker thread decodes one running batch. A new request joins it at the next token and an ended one leaves, so that
no request waits for the slowest of a batch.
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
    """A request and the future that waits for it."""

    request: GenerationRequest
    row: Row
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Generation]


class TransformersEngine:
    """Engine over a transformers causal language model, or one wrapped by PEFT.

    The owner must not train the model while requests run, and sets `weights_version` after an update. Kept prefixes are
    dropped when that or a weight changes. While no request runs, the model's training flags and attention are its own.

    With a seed, or at temperature 0, a request gives the same tokens but for rounding: in bfloat16 the other rows of a
    batch and a reused prefix change the last bits of the logits.

    Args:
        model: owned by the caller.
        pad_id: any id of the vocabulary.
        stop_ids: ids that end a generation (ChatFormat.stop_ids).
        context: longest prompt + completion, tokens.
        max_batch: sequences generated together.
        max_wait_ms: how long a first request waits for others.
        prefix_gib: memory for keys and values of prefixes; 0 turns their reuse off.
        seed: of requests without a seed.
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
        # OpenMP keeps the number of threads by thread, so it is set in the decoding one.
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
        """Continue one prompt; the generation is empty, with reason "length", if the context has no room.

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
        """Fail waiting requests, wait for the current token, and free the keys and values."""
        with self._lock:
            self._closed = True
        await asyncio.to_thread(self._thread.shutdown)
        self._store.clear()

    def _burst(self) -> None:
        """Decode until no request is left. Runs in the worker thread."""
        taken: dict[Row, _Waiting] = {}
        ended: list[tuple[_Waiting, Generation]] = []
        try:
            time.sleep(self._max_wait)
            with self._ready_model():
                while self._take(taken):
                    for waiting, generation in ended:
                        _deliver(waiting, generation)
                    ended = self._advance(taken)
            # The last ones are delivered once the model is restored, for their owner may train it at once.
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
        """Admit new requests; return False at the end of the burst, under the lock so that no request is missed."""
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
        """Prefill new rows, then sample one token for all; return those that ended."""
        new = [row for row in taken if not row.token_ids]
        ended = []
        if new:
            self._drop_old_prefixes()
            ended = self._decoder.admit(new)
        ended += self._decoder.step()
        for row in [row for row in taken if row.finish_reason == "abort"]:
            del taken[row]
        return [(taken.pop(row), row.generation(self.weights_version)) for row in ended]

    def _drop_old_prefixes(self) -> None:
        weights = (self.weights_version, _weights_counter(self._model))
        if weights != self._seen_weights:
            self._store.clear()
            self._seen_weights = weights

    @contextmanager
    def _ready_model(self) -> Iterator[None]:
        """Within, the model is in eval mode without gradients; then every module gets its training flag back."""
        training = [module for module in self._model.modules() if module.training]
        self._model.eval()
        try:
            with torch.no_grad(), folded(self._model):
                yield
        finally:
            for module in training:
                module.training = True


def _weights_counter(model: Any) -> int:
    """Return a counter that grows with every in-place change of a weight, as PyTorch counts them."""
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

    with suppress(RuntimeError):  # the loop is closed
        waiting.loop.call_soon_threadsafe(set_outcome)
