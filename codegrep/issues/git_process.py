"""Runs git on the repositories of others: no prompts, no hooks, no program that a repository names."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from codegrep.errors import RepositoryError

# A repository's own config file may name programs (fsmonitor, hooks, signature checks); these values overrule it.
_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "log.showSignature": "false",
    "safe.directory": "*",
    "protocol.ext.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_KEPT = ("PATH", "HOME", "TMPDIR", "SYSTEMROOT", "http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY",
         "SSL_CERT_FILE", "GIT_SSL_CAINFO")  # fmt: skip


def git_environment() -> dict[str, str]:
    """A small environment for git, without inherited GIT_DIR, GIT_INDEX_FILE and the like (set inside git hooks)."""
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "echo",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_CONFIG_COUNT": str(len(_CONFIG)),
    }
    for index, (key, value) in enumerate(_CONFIG.items()):
        environment[f"GIT_CONFIG_KEY_{index}"] = key
        environment[f"GIT_CONFIG_VALUE_{index}"] = value
    return environment


def run_git(arguments: Sequence[str], folder: Path, stdin: bytes = b"", timeout: float = 600.0) -> bytes:
    """Standard output of one git command that ends by itself.

    Raises:
        RepositoryError: git is missing, fails, or takes longer than `timeout` seconds.
    """
    command = ["git", "--no-pager", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, env=git_environment(), timeout=timeout)
    except FileNotFoundError:
        raise RepositoryError("git is not installed", "Install git 2.31 or later") from None
    except subprocess.TimeoutExpired:
        raise RepositoryError(f"git {arguments[0]} in {folder} took longer than {timeout:.0f} s") from None
    if done.returncode != 0:
        raise RepositoryError(f"git {arguments[0]} failed in {folder}: {_last_line(done.stderr)}")
    return done.stdout


def stream_git(
    arguments: Sequence[str], folder: Path, separator: bytes, stdin: bytes = b"", chunk: int = 1 << 20
) -> Iterator[bytes]:
    """Pieces of a command's output between separators, as they come; closing the iterator ends git.

    Raises:
        RepositoryError: git is missing or fails (raised after the pieces that it still gave).
    """
    command = ["git", "--no-pager", "-C", str(folder), *arguments]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        try:
            process = subprocess.Popen(
                command, stdin=given, stdout=subprocess.PIPE, stderr=errors, env=git_environment()
            )
        except FileNotFoundError:
            raise RepositoryError("git is not installed", "Install git 2.31 or later") from None
        try:
            assert process.stdout is not None
            rest = b""
            while block := process.stdout.read(chunk):
                pieces = (rest + block).split(separator)
                rest = pieces.pop()
                yield from pieces
            if rest:
                yield rest
            if process.wait() != 0:
                errors.seek(0)
                raise RepositoryError(f"git {arguments[0]} failed in {folder}: {_last_line(errors.read())}")
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else "no message"
