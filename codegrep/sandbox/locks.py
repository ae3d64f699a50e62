"""Locks between processes (and threads) on one machine, released by the kernel when their holder dies."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

from codegrep.errors import InfrastructureError


class FileLock:
    """An exclusive `flock` on a file of its own, which is never deleted (deleting it would let two holders in).

    Every acquisition opens the file anew, so threads of one process exclude each other too. Use as a context manager.
    On a network file system flock needs a server that supports it (NFSv4 does).

    Args:
        path: the lock file; its folder is made.
        timeout: seconds to wait in `with`; then InfrastructureError.
        stop: ends the waiting early when it is set, with the same error.
    """

    def __init__(self, path: Path, timeout: float = 600.0, stop: threading.Event | None = None) -> None:
        self.path = path
        self._timeout = timeout
        self._stop = stop
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open descriptor, to be inherited by a child that must hold the lock too."""
        assert self._descriptor is not None, "the lock is not held"
        return self._descriptor

    def try_acquire(self) -> bool:
        """Take the lock if it is free right now."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return False
            raise InfrastructureError(f"the lock {self.path} cannot be taken ({error.strerror})") from error
        self._descriptor = descriptor
        return True

    def acquire(self) -> None:
        """Wait for the lock.

        Raises:
            InfrastructureError: not free within the timeout.
        """
        deadline = time.monotonic() + self._timeout
        pause = 0.001
        while not self.try_acquire():
            if time.monotonic() > deadline or (self._stop is not None and self._stop.is_set()):
                raise InfrastructureError(
                    f"the lock {self.path} was not free within {self._timeout:g} s",
                    "Is another run stuck on the same folder?",
                )
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
