"""Streams the commits of a repository with the files that each changed, through one `git log` process.

`git.Repo.iter_commits` and `git.Commit.diff` start a process for every commit's files, 25 ms each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codegrep.errors import DataError
from codegrep.issues.git import given, open_repository, pieces

# Fields are read by position between NUL bytes, so nothing inside a message can be mistaken for a header.
_FORMAT = "tformat:%x1e%H%x00%P%x00%cI%x00%B%x00"
_START = re.compile(rb"\n?\x1e([0-9a-f]{40})")
_RAW = re.compile(rb"\n?:(\d{6}) (\d{6}) ([0-9a-f]+) ([0-9a-f]+) ([A-Z])\d*")
_HASH_LINE = re.compile(rb"[0-9a-f]{40}")
# Everything a repository's own configuration could change about the output is said here.
_FLAGS = (
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-relative",
    "--no-renames",
    "--no-abbrev",
    "--no-mailmap",
)


@dataclass(frozen=True)
class FileEntry:
    """One changed file of a commit. status: A, M, D or T (type change); `old`, `new` are blob hashes."""

    status: str
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Commit:
    """One commit. A merge has several parents and no `entries`; date is the committer's, ISO 8601."""

    hash: str
    parents: tuple[str, ...]
    date: str
    message: str
    entries: tuple[FileEntry, ...]


def read_commits(
    repository: Path, ref: str = "HEAD", max_commits: int = 0, since: str | None = None, until: str | None = None
) -> Iterator[Commit]:
    """Yield the commits reachable from `ref`, newest first.

    Args:
        repository: bare repository or working clone.
        ref: branch, tag or hash.
        max_commits: stop after so many; 0 means all.
        since, until: ISO dates (of the committer), inclusive.

    Raises:
        RepositoryError: git fails, for instance because `ref` does not exist.
        DataError: `ref` looks like an option.
    """
    if ref.startswith("-") or not ref.strip():
        raise DataError(f"ref {ref!r} is no name of a branch, tag or commit")
    flags = ["--raw", "-z", "--no-notes", "--no-show-signature", "--encoding=UTF-8", "--diff-merges=off", *_FLAGS]
    flags += [f"--format={_FORMAT}"]
    flags += [f"--max-count={max_commits}"] if max_commits > 0 else []
    flags += [f"--since={since}T00:00:00Z"] if since else []
    flags += [f"--until={until}T23:59:59Z"] if until else []
    with open_repository(repository) as repo:
        yield from _commits(pieces(repo.git.log(*flags, "--end-of-options", ref, as_process=True), b"\0"))


def _commits(tokens: Iterator[bytes]) -> Iterator[Commit]:
    head: tuple[str, tuple[str, ...], str, str] | None = None
    entries: list[FileEntry] = []
    for token in tokens:
        start = _START.fullmatch(token)
        if start is not None:
            if head is not None:
                yield Commit(*head, tuple(entries))
            parents = tuple(next(tokens, b"").decode("ascii", "replace").split())
            date = next(tokens, b"").decode("ascii", "replace")
            head = (start[1].decode("ascii"), parents, date, next(tokens, b"").decode("utf-8", "replace"))
            entries = []
            continue
        raw = _RAW.fullmatch(token)
        if raw is not None:
            # A path that is no UTF-8 turns into one with U+FFFD, which the filters leave out.
            path = next(tokens, b"").decode("utf-8", "replace")
            if b"160000" not in (raw[1], raw[2]):  # a submodule is no file
                entries.append(FileEntry(raw[5].decode("ascii"), path, raw[3].decode("ascii"), raw[4].decode("ascii")))
    if head is not None:
        yield Commit(*head, tuple(entries))


def read_patches(repository: Path, hashes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(hash, unified diff against the first parent) of each commit, one in memory at a time, in the order given.

    Raises:
        RepositoryError: git fails.
    """
    if not hashes:
        return
    flags = ["--stdin", "-p", "-r", "--src-prefix=a/", "--dst-prefix=b/", *_FLAGS[:-2]]
    current: str | None = None
    lines: list[bytes] = []
    with given("".join(f"{name}\n" for name in hashes).encode("ascii")) as stdin, open_repository(repository) as repo:
        for line in pieces(repo.git.diff_tree(*flags, istream=stdin, as_process=True), b"\n"):
            # Every line of a diff begins with a marker or a keyword; only git's own heading is a bare hash.
            if _HASH_LINE.fullmatch(line):
                if current is not None:
                    yield current, _patch_text(lines)
                current, lines = line.decode("ascii"), []
            else:
                lines.append(line)
    if current is not None:
        yield current, _patch_text(lines)


def _patch_text(lines: list[bytes]) -> str:
    return b"\n".join([*lines, b""]).decode("utf-8", "replace") if lines else ""
