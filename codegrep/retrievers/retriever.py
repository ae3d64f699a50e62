"""The seam of everything that finds files for an issue: BM25, embeddings, an agent, a user's own method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from codegrep.issues.issue import Issue


@dataclass(frozen=True)
class Retrieved:
    """Files found for one issue.

    Attributes:
        files: repo-relative POSIX paths, best first, without duplicates; may be empty.
        seconds: wall time of the retrieval; what belongs to the tree and not to the issue (building an index) is left
            out and goes into detail.
        detail: numbers by name that are worth a column of the per-issue table.
    """

    files: tuple[str, ...]
    seconds: float
    detail: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Retriever(Protocol):
    """Finds files for issues, one after another. It must not look at the gold fields of the issue."""

    @property
    def name(self) -> str:
        """Label of its rows in tables and metric names."""
        ...

    def retrieve(self, issue: Issue, tree: Path) -> Retrieved:
        """Rank files of the tree.

        Args:
            issue: its problem_statement is the query.
            tree: folder with the files of the repository at issue.base_commit; it is read only.

        Raises:
            RepositoryError: the tree cannot be read.
        """
        ...
