"""git as a child process in a session of its own, with a deadline, and with locks that it keeps when its parent dies.

Its environment is that of issues/git_process.py: no prompts, no hooks, no filters.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from codegrep.issues.git_process import git_environment

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


class GitError(Exception):
    """A git command failed, could not be started, or ran out of time. `str(error)` is one line without credentials."""


def run_git(
    arguments: Sequence[str],
    *,
    timeout: float,
    git_dir: Path | None = None,
    cwd: Path | None = None,
    isolated: bool = True,
    keep_open: Sequence[int] = (),
    extra_environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    stdin: bytes | None = None,
) -> str:
    """Runs one git command and gives back its standard output.

    Args:
        arguments: after `git`.
        timeout: seconds; then the process group is killed.
        isolated: see issues.git_process.git_environment.
        git_dir: the repository, for commands that are not run inside a worktree.
        keep_open: descriptors that the child inherits. A lock's descriptor here keeps the lock taken until git has
            ended, also when this process is killed in between.
        stop: ends the command early when it is set, from whatever thread.
        stdin: given to git; nothing when None.

    Raises:
        GitError: with git's own last line as the reason.
    """
    command = ["git", *([f"--git-dir={git_dir}"] if git_dir is not None else []), *arguments]
    environment = git_environment(isolated) | dict(extra_environment or {})
    name = arguments[0] if arguments else "git"
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=tuple(keep_open),
        )
    except OSError as error:
        raise GitError(f"git could not be started ({error.strerror})") from error
    try:
        out, err = _output(process, timeout, stop, stdin)
    except subprocess.TimeoutExpired:
        stopped = stop is not None and stop.is_set()
        raise GitError(f"git {name} {'was stopped' if stopped else f'took longer than {timeout:g} s'}") from None
    finally:
        if process.poll() is None:
            _kill_group(process)
    if process.returncode != 0:
        raise GitError(f"git {name}: {_reason(err)}")
    return out.decode("utf-8", "surrogateescape")


def without_credentials(text: str) -> str:
    """`text` with `user:password@` taken out of every URL."""
    return _CREDENTIALS.sub("", text)


def _output(
    process: subprocess.Popen[bytes], timeout: float, stop: threading.Event | None, stdin: bytes | None
) -> tuple[bytes, bytes]:
    if stop is None:
        return process.communicate(stdin, timeout=timeout)
    limit = time.monotonic() + timeout
    while True:
        try:
            return process.communicate(stdin, timeout=min(0.2, max(0.0, limit - time.monotonic())))
        except subprocess.TimeoutExpired:
            if stop.is_set() or time.monotonic() >= limit:
                raise


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.communicate()


def _reason(err: bytes) -> str:
    lines = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
    # The first one is the cause ("detected dubious ownership"), later ones its consequences ("could not read from
    # ...").
    line = (telling or lines or ["failed without a message"])[0]
    return without_credentials(line.removeprefix("fatal: ").removeprefix("error: "))[:300]
