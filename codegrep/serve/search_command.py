"""`python -m codegrep search "TEXT"`: the files of a working tree that a text is about, without a model."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from codegrep.errors import ConfigError, RepositoryError
from codegrep.index.search import INDEXES
from codegrep.index.static import load_static
from codegrep.index.tree import SourceFile, TreeIndexer, folder_files, is_indexed, source_file
from codegrep.issues.git import git_environment
from codegrep.issues.paths import is_test_path
from codegrep.sandbox.tools.search import find_ripgrep

_UNITS_A_FILE = 8  # units that are looked at for each file that is asked for


@dataclass(frozen=True)
class Answer:
    """One file of an answer.

    Attributes:
        path: in the tree.
        start, end: lines of its best unit, 1-based, both included.
        name: of that unit, qualified; "" outside definitions.
        evidence: the unit's head in one line.
        score: comparable within one answer.
    """

    path: str
    start: int
    end: int
    name: str
    evidence: str
    score: float


def search(argv: list[str]) -> int:
    """Print ranked files with line ranges; the exit code is 1 where nothing is found.

    Raises:
        ConfigError: there is no text, or the pattern is no regular expression.
        RepositoryError: there is no such folder.
    """
    options = _parser().parse_args(argv)
    text = _text(options)
    try:
        answers = find(
            text,
            Path(options.repo),
            options.k,
            retriever=options.retriever,
            path=options.path,
            pattern=options.pattern,
            tests=options.tests,
        )
    except ValueError as error:
        raise ConfigError(f"--pattern {options.pattern!r} is no regular expression: {error}", "") from None
    if options.json:
        print(json.dumps([asdict(answer) for answer in answers], ensure_ascii=False))
    else:
        _show(answers)
    return 0 if answers else 1


def find(
    text: str,
    folder: Path,
    k: int,
    *,
    retriever: str = "hybrid",
    path: str | None = None,
    pattern: str | None = None,
    tests: bool = False,
) -> list[Answer]:
    """Rank the files of a working tree by a text, best first.

    Args:
        text: an issue, an error message, a question.
        folder: a git repository, or any folder.
        k: files at most.
        retriever: a name of codegrep.index.search.INDEXES.
        path: only below this folder, or files that match this glob.
        pattern: only places that hold a match of this regular expression.
        tests: test files too.

    Raises:
        ValueError: the pattern is not one.
        RepositoryError: there is no such folder.
    """
    root = folder.absolute()
    files = [file for file in _working_files(root) if tests or not is_test_path(file.path)]
    indexer = TreeIndexer(cache_folder() / "index", load_static())
    tree = indexer.index(f"{root.name}-{_digest(str(root))}", files)
    index = INDEXES[retriever](tree, root, find_ripgrep())
    answers: dict[str, Answer] = {}
    for hit in index.search(text, k * _UNITS_A_FILE, path, pattern):
        unit = hit.unit
        answers.setdefault(
            unit.path, Answer(unit.path, unit.start, unit.end, unit.name, unit.signature or unit.docstring, hit.score)
        )
    return list(answers.values())[:k]


def cache_folder() -> Path:
    """Return the user's folder for what can be made again: $XDG_CACHE_HOME/codegrep, or ~/.cache/codegrep."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "codegrep"


def _working_files(root: Path) -> list[SourceFile]:
    """The files as they are, uncommitted ones included; in a git repository without those that git ignores."""
    if not root.is_dir():
        raise RepositoryError(f"there is no folder {root}", "Name one with --repo")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        env=git_environment(),
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        return folder_files(root)
    names = sorted({name for name in listed.stdout.decode("utf-8", "surrogateescape").split("\0") if name})
    return [
        source_file(root, name)
        for name in names
        if is_indexed(name) and (root / name).is_file() and not (root / name).is_symlink()
    ]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _text(options: argparse.Namespace) -> str:
    text = str(options.text)
    if text == "-":
        text = sys.stdin.read()
    elif text and options.file:
        raise ConfigError("both a text and --file are given", "Leave one out")
    if options.file:
        try:
            text = Path(options.file).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"{options.file} cannot be read: {error.strerror}", "") from None
    if not text.strip():
        raise ConfigError("there is no text to search for", 'Give it: python -m codegrep search "TEXT"')
    return text


def _show(answers: list[Answer]) -> None:
    console = Console(highlight=False)
    for answer in answers:
        place = f"{answer.path}:{answer.start}-{answer.end}"
        console.print(place, style="bold", markup=False, end="")
        console.print(f"  {answer.evidence}" if answer.evidence else "", markup=False, style="dim", overflow="ellipsis")
    if not answers:
        console.print("nothing found", markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m codegrep search",
        description="Rank the files of a working tree by a text: an issue, an error message, a question. No model.",
    )
    parser.add_argument("text", nargs="?", default="", help='the text; "-" reads standard input')
    parser.add_argument("--file", help="read the text from a file")
    parser.add_argument("--repo", default=".", help="folder to search (default: this one)")
    parser.add_argument("--retriever", choices=sorted(INDEXES), default="hybrid", help="default: hybrid")
    parser.add_argument("-k", type=int, default=5, help="files at most (default: 5)")
    parser.add_argument("--path", help="only below this folder, or files that match this glob")
    parser.add_argument("--pattern", help="only places that match this regular expression")
    parser.add_argument("--tests", action="store_true", help="test files too")
    parser.add_argument("--json", action="store_true", help="one JSON list for programs")
    return parser
