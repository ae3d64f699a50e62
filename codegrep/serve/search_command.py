"""`python -m codegrep search "TEXT"`: the files of a working tree that a text is about."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from codegrep.errors import ConfigError
from codegrep.index.search import INDEXES
from codegrep.serve.retriever import Answer, Retriever

if TYPE_CHECKING:
    from codegrep.protocol.calls import ToolResult

_SHOWN_ARGUMENTS = 100  # characters of a call that a person sees while an agent works


def search(argv: list[str]) -> int:
    """Print ranked files with line ranges; the exit code is 1 where nothing is found.

    Raises:
        ConfigError: there is no text, or an option cannot be used.
        RepositoryError: there is no such folder.
        ModelError: there is no such model.
    """
    options = _parser().parse_args(argv)
    text = _text(options)
    if options.model and options.retriever:
        raise ConfigError("both --model and --retriever are given", "Leave one out")
    retriever = Retriever.load(
        options.model or options.retriever or "hybrid", outputs=options.outputs, tracking_uri=options.uri
    )
    try:
        answers = retriever.search(
            text,
            options.repo,
            options.k,
            path=options.path,
            pattern=options.pattern,
            tests=options.tests,
            why=options.why,
            on_turn=_show_turn,
        )
    except ValueError as error:
        raise ConfigError(str(error), "See python -m codegrep search --help") from None
    if options.json:
        print(json.dumps([asdict(answer) for answer in answers], ensure_ascii=False))
    else:
        _show(answers)
        if not answers and options.model:
            print("codegrep: the model named no file of this tree; without --model an index answers", file=sys.stderr)
    return 0 if answers else 1


def _text(options: argparse.Namespace) -> str:
    text = str(options.text)
    if text and options.file:
        raise ConfigError("both a text and --file are given", "Leave one out")
    if text == "-":
        text = sys.stdin.read()
    if options.file:
        try:
            text = Path(options.file).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"{options.file} cannot be read: {error.strerror}", "") from None
    if not text.strip():
        raise ConfigError("there is no text to search for", 'Give it: python -m codegrep search "TEXT"')
    return text


def _show_turn(number: int, results: Sequence[ToolResult]) -> None:
    """One line a call, on standard error."""
    from codegrep.protocol.calls import ToolCall

    console = Console(stderr=True, highlight=False)
    for result in results:
        call = result.call
        said = f"{call.name} {json.dumps(dict(call.arguments))}" if isinstance(call, ToolCall) else call.raw
        said = " ".join(said.split())[:_SHOWN_ARGUMENTS]
        found = f"{result.matched_files} files" if result.status == "ok" else result.status.value
        console.print(f"turn {number}: {said} → {found}", markup=False, style="dim")


def _show(answers: list[Answer]) -> None:
    console = Console(highlight=False)
    for answer in answers:
        place = f"{answer.path}:{answer.start}-{answer.end}"
        console.print(place, style="bold", markup=False, end="", soft_wrap=True)
        console.print(f"  {answer.evidence}" if answer.evidence else "", markup=False, style="dim", soft_wrap=True)
        for reason in answer.why:
            console.print(f"    {reason}", markup=False, soft_wrap=True)
    if not answers:
        console.print("nothing found", markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m codegrep search",
        description="Rank the files of a working tree by a text: an issue, an error message, a question.",
        epilog="Exit codes: 0 with an answer, 1 without one, 2 for an error.",
    )
    parser.add_argument("text", nargs="?", default="", help='the text; "-" reads standard input')
    parser.add_argument("--file", help="read the text from a file")
    parser.add_argument("--repo", default=".", help="folder to search (default: this one)")
    parser.add_argument("--retriever", choices=sorted(INDEXES), help="index that answers (default: hybrid)")
    parser.add_argument("--model", default="", help="a policy answers: models:/NAME@ALIAS, a folder, or a hub id")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="outputs folder (default: outputs)")
    parser.add_argument("--uri", default="", help="MLflow tracking URI (default: the SQLite file under OUTPUTS)")
    parser.add_argument("-k", type=int, default=5, help="files at most (default: 5)")
    parser.add_argument("--path", help="only below this folder, or files that match this glob")
    parser.add_argument("--pattern", help="only places that match this regular expression")
    parser.add_argument("--tests", action="store_true", help="test files too")
    parser.add_argument("--why", action="store_true", help="say what speaks for each file")
    parser.add_argument("--json", action="store_true", help="one JSON list for programs")
    return parser
