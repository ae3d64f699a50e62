"""Runs git on the repositories of others: no prompts, no hooks, no program that a repository names."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from codegrep.errors import RepositoryError

# Given with every command, so that neither a person's configuration nor a repository's can run a program (hooks,
# fsmonitor, signature checks), change a file on its way or move HEAD.
_SAFE_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.safecrlf": "false",
    "core.quotePath": "false",
    "log.showSignature": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
    "protocol.ext.allow": "never",
}
# Reading a repository of somebody else (a shared disk, a container) is what this is for; nothing of it is run.
_ISOLATED_CONFIG = {"safe.directory": "*"}
# "http" stays allowed: a commit is asked for by its hash, so what arrives is what was asked for.
_PROTOCOLS = "https:http:ssh:git:file"
_KEPT = ("PATH", "HOME", "TMPDIR", "SYSTEMROOT")


def git_environment(isolated: bool = True) -> dict[str, str]:
    """The environment of a git process, the only one that this project gives to git.

    No prompts, no hooks, no filters, no lazy fetches, and no inherited GIT_DIR, GIT_INDEX_FILE and the like, which are
    set inside git hooks and would redirect every command.

    Args:
        isolated: a small environment without the person's and the system's git configuration. True for everything that
            reads a repository or decides what a tree looks like; False for clone and fetch, which need proxies,
            certificates, agents and credential helpers.
    """
    if isolated:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    else:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k.startswith("GIT_SSL")}
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
    config = _SAFE_CONFIG | _ISOLATED_CONFIG if isolated else _SAFE_CONFIG
    environment["GIT_CONFIG_COUNT"] = str(len(config))
    for index, (key, value) in enumerate(config.items()):
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
