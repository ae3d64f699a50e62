"""Runs search processes with a deadline, reading their output as it comes and killing the whole group at the end.

Each process is looked after by a thread, not by asyncio's own subprocesses: those can wait for a group's last pipe
before they report a cancellation, and need a child watcher that fits the loop. Threads behave alike in every loop,
Ray's included, and reading a large output does not hold up the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 1 << 16
_MAX_STDERR = 1 << 14
# A process that was given at least this share of one core had its chance.
_FAIR_SHARE = 0.5


class ProcessTimeout(Exception):
    """The deadline passed.

    Attributes:
        seconds: the deadline.
        starved: the process got less than half a core on average, so the machine was too busy and not the request too
            heavy.
    """

    def __init__(self, seconds: float, starved: bool) -> None:
        super().__init__(f"timed out after {seconds:g}s")
        self.seconds = seconds
        self.starved = starved


class ProcessFailed(Exception):
    """The process could not be started."""


@dataclass(frozen=True)
class Exit:
    """How a process ended. stopped: it was ended because its output was enough."""

    code: int
    stderr: str
    stopped: bool


class ProcessRunner:
    """Runs processes for asyncio.

    Args:
        most: processes at once; more wait, with their deadlines not yet running.
    """

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(max(1, most), thread_name_prefix="search")

    async def run(self, command: Sequence[str], cwd: Path, timeout: float, take: Callable[[bytes], bool]) -> Exit:
        """Run a command without a shell, without input, in a session of its own.

        Cancelling kills its group and waits until it is gone.

        Args:
            command: program and arguments.
            timeout: seconds.
            take: is given the output chunk by chunk, in another thread; False ends the process.

        Raises:
            ProcessTimeout: after its group was killed. ProcessFailed: it could not be started.
        """
        job = _Job(command, cwd, timeout, take)
        running = asyncio.get_running_loop().run_in_executor(self._threads, job.run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            job.cancel()
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # looked at, so that asyncio does not complain about it
            raise


class _Job:
    def __init__(self, command: Sequence[str], cwd: Path, timeout: float, take: Callable[[bytes], bool]) -> None:
        self._command = command
        self._cwd = cwd
        self._timeout = timeout
        self._take = take
        self._guard = threading.Lock()
        self._cancelled = False
        self._process: subprocess.Popen[bytes] | None = None

    def cancel(self) -> None:
        """End the process from another thread, or keep it from being started."""
        with self._guard:
            self._cancelled = True
            if self._process is not None:
                _kill(self._process)

    def run(self) -> Exit:
        deadline = time.monotonic() + self._timeout
        process = self._start()
        try:
            stopped, stderr = self._read(process, deadline)
            if stopped:
                _kill(process)
            code = self._wait(process, deadline)
            return Exit(code, stderr.decode("utf-8", "replace"), stopped)
        except subprocess.TimeoutExpired:
            used = _cpu_seconds(process.pid)
            starved = used is not None and used < _FAIR_SHARE * self._timeout
            raise ProcessTimeout(self._timeout, starved) from None
        finally:
            with self._guard:
                _kill(process)
                process.wait()
                self._process = None
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._cancelled:
                raise ProcessFailed("cancelled")
            try:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._cwd,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
            except OSError as error:
                raise ProcessFailed(f"{self._command[0]} could not be started ({error.strerror})") from error
            return self._process

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[bool, bytes]:
        """Both pipes to their ends, or until `take` has enough."""
        assert process.stdout is not None and process.stderr is not None
        stdout, errors = process.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(process.stderr.fileno(), selectors.EVENT_READ)
            while selector.get_map():
                left = deadline - time.monotonic()
                ready = selector.select(left) if left > 0 else []
                if not ready:
                    raise subprocess.TimeoutExpired(process.args, self._timeout)
                for key, _ in ready:
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        selector.unregister(key.fd)
                    elif key.fd != stdout:
                        errors = (errors + chunk)[:_MAX_STDERR]
                    elif not self._take(chunk):
                        return True, errors
        return False, errors

    def _wait(self, process: subprocess.Popen[bytes], deadline: float) -> int:
        # Reaped under the guard: else its number could be another's when `cancel` sends its signal.
        while True:
            with self._guard:
                if (code := process.poll()) is not None:
                    self._process = None
                    return code
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(process.args, self._timeout)
            time.sleep(0.0005)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # else its number may be another's by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _cpu_seconds(pid: int) -> float | None:
    """CPU time of a process so far, or None where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _environment() -> dict[str, str]:
    # RIPGREP_CONFIG_PATH, GREP_OPTIONS and secrets have no business in a search process.
    # LC_ALL=C: else grep takes a file with one byte that is not UTF-8 for a binary one. ripgrep does not ask.
    return {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}
