"""git as a child process: a clean environment, no prompts, no hooks, no filters, and a deadline."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Given with every command, so that neither a person's configuration nor a repository's can run anything or move HEAD.
_SAFE_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.eol=lf",
    "core.safecrlf=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "protocol.ext.allow=never",
)
# "http" stays allowed: a commit is asked for by its hash, so what arrives is what was asked for.
_PROTOCOLS = "https:http:ssh:git:file"
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


class GitError(Exception):
    """A git command failed, could not be started, or ran out of time. `str(error)` is one line without credentials."""


def git_environment(isolated: bool) -> dict[str, str]:
    """The environment of a git child process.

    Args:
        isolated: leave the person's and the system's git configuration out. True for everything that decides what a
            tree looks like; False for clone and fetch, which need proxies and credential helpers.
    """
    # GIT_DIR, GIT_INDEX_FILE and the like (set inside hooks) would redirect every command.
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("GIT_") or (k.startswith("GIT_SSL") and not isolated)
    }
    environment |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "echo",
        "SSH_ASKPASS": "echo",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS,
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
        "GIT_HTTP_LOW_SPEED_TIME": "60",
    }
    if isolated:
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return environment


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
        arguments: after `git` and the safe configuration.
        timeout: seconds; then the process group is killed.
        git_dir: the repository, for commands that are not run inside a worktree.
        keep_open: descriptors that the child inherits. A lock's descriptor here keeps the lock taken until git has
            ended, also when this process is killed in between.
        stop: ends the command early when it is set, from whatever thread.
        stdin: given to git; nothing when None.

    Raises:
        GitError: with git's own last line as the reason.
    """
    command = ["git", *(part for entry in _SAFE_CONFIG for part in ("-c", entry))]
    if git_dir is not None:
        command.append(f"--git-dir={git_dir}")
    command += arguments
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
