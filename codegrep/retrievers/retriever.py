"""The seam of everything that finds files for an issue: BM25, embeddings, an agent, a user's own method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from codegrep.issues.issue import Issue

DEPTH = 20
"""Files that a ranking has in an evaluation, at most; quality is measured at 1, 5, 10 and 20."""


@dataclass(frozen=True)
class Retrieved:
    """Files found for one issue.

    Attributes:
        files: repo-relative POSIX paths, best first, without duplicates; may be empty.
        seconds: wall time of the retrieval; what belongs to the tree and not to the issue (building an index) is left
            out and goes into detail.
        detail: numbers by name. An evaluation shows `index_seconds` (wall time of building the tree's index) and
            `index_bytes` (its size in memory).
    """

    files: tuple[str, ...]
    seconds: float
    detail: Mapping[str, float] = field(default_factory=dict)


def array_bytes(*indexes: object) -> float:
    """Return the size in memory of the arrays that objects hold."""
    return float(sum(value.nbytes for index in indexes for value in vars(index).values() if hasattr(value, "nbytes")))


@runtime_checkable
class Retriever(Protocol):
    """Finds files for issues, one after another. It must not look at the gold fields of the issue.

    A class may say more about itself: `uses_gold = True` (it looks at gold: a bound), `evaluation_only = True` (it
    finds nothing outside an evaluation), `runs_a_model = True` (a neural network), and a method `identity() -> str`
    that names the model or file which decides its answers, so that another one is measured anew.
    """

    def retrieve(self, issue: Issue, tree: Path) -> Retrieved:
        """Rank files of the tree.

        Args:
            issue: its problem_statement is the query.
            tree: folder with the files of the repository at issue.base_commit; it is read only.

        Raises:
            CodegrepError: the tree cannot be read, or this issue cannot be answered.
        """
        ...
