"""Runs one search process with a deadline, reading its output as it comes and killing its whole group at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
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


async def run_process(command: Sequence[str | bytes], cwd: Path, timeout: float, take: Callable[[bytes], bool]) -> Exit:
    """Runs a command without a shell, without input, in a session of its own.

    Args:
        command: program and arguments.
        timeout: seconds.
        take: is given the output chunk by chunk; False ends the process.

    Raises:
        ProcessTimeout: after its group was killed. ProcessFailed: it could not be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=_environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ProcessFailed(f"{os.fsdecode(command[0])} could not be started ({error.strerror})") from error
    errors = asyncio.ensure_future(_drain(process.stderr))
    try:
        async with asyncio.timeout(timeout):
            stopped = await _feed(process.stdout, take)
            if stopped:
                _kill(process)
            code = await process.wait()
            return Exit(code, (await errors).decode("utf-8", "replace"), stopped)
    except TimeoutError:
        used = _cpu_seconds(process.pid)
        raise ProcessTimeout(timeout, starved=used is not None and used < _FAIR_SHARE * timeout) from None
    finally:
        if process.returncode is None:
            _kill(process)
            # Shielded: a cancelled call still waits until its process is gone, so that its slot is truly free.
            await asyncio.shield(asyncio.ensure_future(process.wait()))
        errors.cancel()


async def _feed(stream: asyncio.StreamReader | None, take: Callable[[bytes], bool]) -> bool:
    assert stream is not None
    while chunk := await stream.read(_CHUNK):
        if not take(chunk):
            return True
    return False


async def _drain(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    kept = b""
    while chunk := await stream.read(_CHUNK):
        if len(kept) < _MAX_STDERR:
            kept += chunk
    return kept


def _kill(process: asyncio.subprocess.Process) -> None:
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
    return {"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", os.defpath)}
