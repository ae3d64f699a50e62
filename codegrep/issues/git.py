"""git through GitPython, on the repositories of others: no prompts, no hooks, no program that a repository names.

The only module that imports GitPython. A repository is opened for one block and one thread: the `cat-file` processes
that its objects are read through belong to that thread and end with the block.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # where git is missing, the first command says so in one line

import git

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
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_KEPT = ("PATH", "HOME", "TMPDIR")


def git_environment(isolated: bool = True) -> dict[str, str]:
    """Return the environment of a git process, the only one that this project gives to git.

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
        "GIT_TEMPLATE_DIR": "",
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


class GitError(RepositoryError):
    """A git command failed, could not be started, or ran out of time: git's own line, without credentials."""


@dataclass(frozen=True)
class Limits:
    """How the commands of a repository run.

    Attributes:
        timeout: seconds for a command; then its process group is killed. Output that is streamed has no deadline.
        stop: ends a command early when it is set, from whatever thread.
        keep_open: descriptors that git inherits. A lock's descriptor here keeps the lock taken until git has ended,
            also when this process is killed in between.
        isolated: see `git_environment`.
    """

    timeout: float = 600.0
    stop: threading.Event | None = None
    keep_open: tuple[int, ...] = ()
    isolated: bool = True


class _Process(git.Git.AutoInterrupt):
    """A git process in a session of its own, which ends with this object, its helpers included."""

    def __init__(self, process: subprocess.Popen[Any], command: Sequence[str], errors: IO[bytes], limits: Limits):
        super().__init__(process, command)
        self._command, self._errors, self._limits = command[1], errors, limits

    def communicate(self) -> tuple[Any, None]:
        assert self.proc is not None
        deadline = time.monotonic() + self._limits.timeout
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return self.proc.communicate(timeout=min(0.2, max(0.0, deadline - time.monotonic())))[0], None
                if self._limits.stop is not None and self._limits.stop.is_set():
                    raise GitError(f"git {self._command} was stopped")
                if time.monotonic() >= deadline:
                    raise GitError(f"git {self._command} took longer than {self._limits.timeout:g} s")
        except BaseException:
            self._terminate()
            raise

    def wait(self, stderr: str | bytes | None = b"") -> int:
        assert self.proc is not None
        if status := self.proc.wait():
            self._errors.seek(0)
            raise GitError(f"git {self._command}: {_reason(self._errors.read())}")
        return status

    def _terminate(self) -> None:
        if self.proc is not None and self.proc.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.proc.pid, signal.SIGKILL)
        super()._terminate()
        self._errors.close()


class _Git(git.Git):
    """GitPython's commands under our environment and `Limits`.

    GitPython's own `execute` hands every inherited GIT_DIR and the like on, has no way to be stopped, and kills a
    command's helpers by asking `pgrep`.
    """

    def __init__(self, working_dir: str | os.PathLike[str] | None = None, limits: Limits | None = None) -> None:
        super().__init__(working_dir)
        self.limits = limits or Limits()

    def execute(  # type: ignore[override]
        self,
        command: Sequence[str],
        istream: int | IO[bytes] | None = None,
        as_process: bool = False,
        stdout_as_string: bool = True,
        universal_newlines: bool = False,
        **_: Any,
    ) -> Any:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - _Process closes it
        try:
            process = subprocess.Popen(
                command,
                cwd=self._working_dir,
                env=git_environment(self.limits.isolated) | self._environment,
                stdin=istream or subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=universal_newlines,
                start_new_session=True,
                pass_fds=self.limits.keep_open,
            )
        except OSError as error:
            errors.close()
            fix = "Install git 2.31 or later." if error.filename == command[0] else ""
            raise GitError(f"git could not be started ({error.strerror}: {error.filename})", fix) from error
        running = _Process(process, command, errors, self.limits)
        if as_process:
            return running
        out = running.communicate()[0]
        running.wait()
        return out.decode("utf-8", "surrogateescape").removesuffix("\n") if stdout_as_string else out


class Repo(git.Repo):
    """`git.Repo` whose commands run in our environment, within `Limits`."""

    GitCommandWrapperType = _Git


@contextmanager
def open_repository(path: Path, limits: Limits | None = None) -> Iterator[Repo]:
    """Return the repository at `path`, bare, working clone or linked worktree; its `git` runs commands within `limits`.

    Raises:
        GitError: there is none, or (from any command in the block) git failed.
    """
    try:
        repo = Repo(path, expand_vars=False)
    except (git.GitError, OSError) as error:
        raise GitError(f"{path} is not a git repository") from error
    with repo:
        cast(_Git, repo.git).limits = limits or Limits()
        # git itself must not look for a repository around a damaged one.
        repo.git.update_environment(GIT_DIR=os.fspath(repo.git_dir))
        yield repo


def clone(source: str, path: Path, limits: Limits) -> None:
    """Make a bare clone that needs its source no more.

    Raises:
        GitError: git failed.
    """
    kind: Any = type("_Clone", (Repo,), {"GitCommandWrapperType": staticmethod(partial(_Git, limits=limits))})
    kind.clone_from(source, path, bare=True, dissociate=True, no_recurse_submodules=True).close()


def remote_commit(source: str, name: str, limits: Limits) -> str | None:
    """Return the commit that HEAD, a branch or a tag of a repository stands at now; None where it has no such name.

    Args:
        source: path or address.
        name: HEAD, or a branch or tag.
        limits: of the command.

    Raises:
        GitError: the repository cannot be read.
    """
    listed = str(_Git(limits=limits).ls_remote("--", source, name, f"{name}^{{}}")).split("\n")
    commits = {ref: commit for commit, _, ref in (line.partition("\t") for line in listed if line)}
    refs = [name] if name == "HEAD" else [f"refs/heads/{name}", f"refs/tags/{name}^{{}}", f"refs/tags/{name}"]
    return next((commits[ref] for ref in refs if ref in commits), None)


def init(path: Path) -> None:
    """Make an empty bare repository whose branch is `main`."""
    Repo.init(path, bare=True, initial_branch="main").close()


def holds(repo: Repo, name: str) -> bool:
    """Whether the repository has the object ("commit", "commit:path"); one process answers for all names of a block.

    Raises:
        GitError: git refuses the repository.
    """
    try:
        repo.git.get_object_header(name)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) or str(error).startswith("SHA is empty"):
            assert repo.git.cat_file_header is not None
            repo.git.cat_file_header.wait()
        return False
    return True


def blob(repo: Repo, name: str) -> bytes:
    """Return the content of an object that the repository has."""
    content: bytes = repo.git.get_object_data(name)[3]
    return content


@contextmanager
def given(content: bytes) -> Iterator[IO[bytes]]:
    """Yield standard input for a command (`istream`)."""
    with tempfile.TemporaryFile() as stream:
        stream.write(content)
        stream.seek(0)
        yield stream


def pieces(process: git.Git.AutoInterrupt, separator: bytes, chunk: int = 1 << 20) -> Iterator[bytes]:
    """Return what a command started with `as_process` puts out, piece by piece; closing the iterator ends git.

    Raises:
        GitError: git failed (raised after the pieces that it still gave).
    """
    rest = b""
    while block := process.stdout.read(chunk):
        *whole, rest = (rest + block).split(separator)
        yield from whole
    if rest:
        yield rest
    process.wait()


def without_credentials(text: str) -> str:
    """`text` with `user:password@` taken out of every URL."""
    return _CREDENTIALS.sub("", text)


def _reason(err: bytes) -> str:
    lines = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
    # The first one is the cause ("detected dubious ownership"), later ones its consequences ("could not read from
    # ...").
    line = (telling or lines or ["failed without a message"])[0]
    return without_credentials(line.removeprefix("fatal: ").removeprefix("error: "))[:300]
