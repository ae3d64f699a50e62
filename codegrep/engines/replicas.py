"""Several engine actors behind the interface of one engine: routing, retries, restarts, weight sync."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codegrep.engines.engine import EngineLostError, Generation, GenerationRequest, StaleWeightsError
from codegrep.errors import CodegrepError, InfrastructureError

if TYPE_CHECKING:  # it imports torch, and the driver may have nothing to do
    from codegrep.engines.adapter import AdapterPackage, AdapterReceipt

log = logging.getLogger(__name__)

# Requests of one prefix group go to one replica, unless it has this many more requests than the idlest.
_SLACK = 8
_PAUSE = 0.5


@dataclass(frozen=True)
class RetryPolicy:
    """Timeouts and attempts.

    Attributes:
        start_seconds: longest start of a replica.
        request_seconds: longest answer, sync included; after that the replica counts as hanging and is restarted.
        attempts: of one request.
    """

    start_seconds: float
    request_seconds: float
    attempts: int


@dataclass(eq=False)
class _Replica:
    """State of one actor. epoch: counts its restarts, so that many failed requests restart it once."""

    handle: Any
    number: int
    ready: bool = False
    outstanding: int = 0
    epoch: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class RemoteEngine:
    """Engine over replicas; picklable, each copy belongs to the event loop that uses it.

    A replica that dies, hangs or gives malformed output is restarted by Ray and sent the adapter again. Its requests
    are repeated with the same seed.

    Attributes:
        counts: "retries", "restarts", "syncs" so far.
        weights_version: of the last sync.
    """

    def __init__(self, handles: Sequence[Any], patience: RetryPolicy) -> None:
        if not handles:
            raise ValueError("at least one replica is needed")
        self._patience = patience
        self._replicas = [_Replica(handle, number) for number, handle in enumerate(handles)]
        self._sha256 = ""
        self._package: AdapterPackage | None = None
        self._reference: Any = None
        self.counts: Counter[str] = Counter()
        self.weights_version = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, ([r.handle for r in self._replicas], self._patience, self._package)

    async def start(self) -> None:
        """Wait until every replica answers.

        Raises:
            ConfigError, ModelError: it can never start.
            InfrastructureError: it did not start in time.
        """
        await asyncio.gather(*(self._make_ready(replica) for replica in self._replicas))

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue one prompt.

        Raises:
            InfrastructureError: all attempts failed.
        """
        failure: CodegrepError | None = None
        tried: list[_Replica] = []
        for attempt in range(self._patience.attempts):
            self.counts["retries"] += attempt > 0
            replica = self._choose(request, tried)
            tried.append(replica)
            replica.outstanding += 1
            epoch = replica.epoch
            try:
                await self._make_ready(replica)
                epoch = replica.epoch
                work = replica.handle.generate.remote(request, self._sha256)
                return _checked(await _answer(work, self._patience.request_seconds))
            except StaleWeightsError as error:
                failure, replica.ready = error, False
            except _GoneError as error:
                failure = error
                self._note_loss(replica, epoch, str(error))
            except EngineLostError as error:
                failure = error
                self._restart(replica, epoch, str(error))
            finally:
                replica.outstanding -= 1
        raise InfrastructureError(f"{self._patience.attempts} attempts of a generation failed, the last one: {failure}")

    async def sync(self, package: AdapterPackage) -> list[AdapterReceipt]:
        """Send every replica the trainer's adapter, and compare checksums.

        Returns:
            One receipt for each replica.

        Raises:
            InfrastructureError: a replica does not have the weights afterwards, or cannot be reached.
        """
        import ray

        self._package, self._sha256, self._reference = package, package.sha256, ray.put(package)
        self.weights_version = package.version
        for replica in self._replicas:
            replica.ready = False
        receipts = await asyncio.gather(*(self._make_ready(replica) for replica in self._replicas))
        self.counts["syncs"] += 1
        for number, receipt in enumerate(receipts):
            if receipt is not None:
                log.info(
                    "weights version %d on replica %d: sent %s, in its slot %s",
                    receipt.version,
                    number,
                    package.sha256[:12],
                    receipt.factors_sha256[:12],
                )
        return [receipt for receipt in receipts if receipt is not None]

    async def sleep(self) -> None:
        """Let every replica free its memory for the trainer."""
        await asyncio.gather(*(self._tell(replica, "sleep") for replica in self._replicas))

    async def wake(self) -> None:
        """Undo `sleep`."""
        await asyncio.gather(*(self._tell(replica, "wake") for replica in self._replicas))

    async def close(self) -> None:
        """Do nothing: replicas outlive the workers that use them, and their owner calls `end`."""

    def end(self) -> None:
        """End the actors and their processes."""
        import ray

        for replica in self._replicas:
            ray.kill(replica.handle)

    def _choose(self, request: GenerationRequest, tried: Sequence[_Replica]) -> _Replica:
        fresh = [replica for replica in self._replicas if replica not in tried] or self._replicas
        able = [replica for replica in fresh if replica.ready] or fresh
        idlest = min(able, key=lambda replica: replica.outstanding)
        if request.prefix_group is None:
            return idlest
        home = able[request.prefix_group % len(able)]
        return home if home.outstanding <= idlest.outstanding + _SLACK else idlest

    async def _make_ready(self, replica: _Replica) -> AdapterReceipt | None:
        """Start the replica if it is not ready, and send it the adapter."""
        async with replica.lock:
            if replica.ready:
                return None
            deadline = time.monotonic() + self._patience.start_seconds
            while True:
                left = deadline - time.monotonic()
                try:
                    await _answer(replica.handle.start.remote(), max(left, 1.0))
                    receipt = await self._send_adapter(replica)
                    break
                except EngineLostError as error:
                    if left <= 0:
                        seconds = self._patience.start_seconds
                        raise InfrastructureError(
                            f"engine replica {replica.number} did not start in {seconds:.0f} s ({error})"
                        ) from None
                    if not isinstance(error, _GoneError):  # the actor lives, but its engine does not
                        self._restart(replica, replica.epoch, str(error))
                    await asyncio.sleep(_PAUSE)
            replica.ready = True
            return receipt

    async def _send_adapter(self, replica: _Replica) -> AdapterReceipt | None:
        if self._package is None:
            return None
        import ray

        from codegrep.engines.adapter import check_receipt

        if self._reference is None:
            self._reference = ray.put(self._package)
        work = replica.handle.load_adapter.remote(self._reference)
        receipt: AdapterReceipt = await _answer(work, self._patience.request_seconds)
        check_receipt(self._package, receipt, f"engine replica {replica.number}")
        return receipt

    def _note_loss(self, replica: _Replica, epoch: int, why: str) -> bool:
        """Mark a replica as not ready; return False if another request has done so."""
        if replica.epoch != epoch:
            return False
        replica.epoch += 1
        replica.ready = False
        self.counts["restarts"] += 1
        log.warning("engine replica %d is restarted: %s", replica.number, why)
        return True

    def _restart(self, replica: _Replica, epoch: int, why: str) -> None:
        import ray

        if self._note_loss(replica, epoch, why):
            try:
                ray.kill(replica.handle, no_restart=False)
            except (ValueError, ray.exceptions.RayError):  # it is dead already, and Ray restarts it
                log.debug("replica %d was gone", replica.number)

    async def _tell(self, replica: _Replica, method: str) -> None:
        try:
            await _answer(getattr(replica.handle, method).remote(), self._patience.request_seconds)
        except EngineLostError as error:
            self._restart(replica, replica.epoch, str(error))


class _GoneError(EngineLostError):
    """The actor died; Ray restarts it."""


def _rebuild(handles: Sequence[Any], patience: RetryPolicy, package: AdapterPackage | None) -> RemoteEngine:
    engine = RemoteEngine(handles, patience)
    if package is not None:
        engine._package, engine._sha256, engine.weights_version = package, package.sha256, package.version
    return engine


async def _answer(work: Any, seconds: float) -> Any:
    """Await an actor's answer.

    Raises:
        EngineLostError: the actor is gone, or silent for `seconds`.
        CodegrepError: what the actor raised.
    """
    import ray
    from ray.exceptions import RayActorError, RayError, RayTaskError

    async def awaited() -> Any:
        return await work

    try:
        return await asyncio.wait_for(awaited(), seconds)
    except TimeoutError:
        ray.cancel(work, recursive=False)
        raise EngineLostError(f"an engine replica was silent for {seconds:.0f} s") from None
    except asyncio.CancelledError:
        ray.cancel(work, recursive=False)
        raise
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, CodegrepError):
            raise cause from None
        raise EngineLostError(f"an engine replica failed ({type(cause).__name__}: {_first_line(cause)})") from None
    except RayActorError as error:
        raise _GoneError(f"an engine replica was lost ({_first_line(error)})") from None
    except RayError as error:
        raise EngineLostError(f"an engine replica cannot be asked ({_first_line(error)})") from None


def _checked(generation: Any) -> Generation:
    """Reject malformed engine output so that it is retried, not scored."""
    if not isinstance(generation, Generation):
        raise EngineLostError(f"an engine replica answered with {type(generation).__name__}")
    if generation.finish_reason == "abort":
        raise EngineLostError("an engine replica gave up a generation")
    if generation.finish_reason == "stop" and not generation.token_ids:
        raise EngineLostError("an engine replica ended a generation without a token")
    if generation.logprobs and len(generation.logprobs) != len(generation.token_ids):
        raise EngineLostError("an engine replica gave log-probabilities of another length than its tokens")
    return generation


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
