"""What could be reached by choosing among the files that a retriever finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from codegrep.config import RetrieverConfig
from codegrep.issues.issue import Issue
from codegrep.retrievers.registry import identity, open_retriever
from codegrep.retrievers.retriever import Retrieved


class Oracle:
    """The best subset of a retriever's first files (colgrep, arXiv 2610.05099): those that are gold; a bound.

    Args:
        kind, args: of the retriever, as in conf/retriever.
        top: files that are chosen from.
    """

    uses_gold = True
    evaluation_only = True

    def __init__(self, kind: str, args: dict[str, Any], top: int = 10, *, name: str, folder: Path) -> None:
        self._retriever = open_retriever(RetrieverConfig(name=name, kind=kind, args=args), folder)
        self._top = top

    def identity(self) -> str:
        """Return that of the retriever."""
        return identity(self._retriever)

    def retrieve(self, issue: Issue, tree: Path) -> Retrieved:
        """Give the gold files among the retriever's first ones. See `Retriever.retrieve`."""
        answer = self._retriever.retrieve(issue, tree)
        gold = set(issue.gold_files)
        return Retrieved(
            tuple(path for path in answer.files[: self._top] if path in gold), answer.seconds, answer.detail
        )
