"""The seam of this room: a source of issues, and what loading one gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from codegrep.errors import DataError
from codegrep.issues.issue import Issue

#: Broken rows are all counted; only so many are kept with their reason.
LISTED_BROKEN_ROWS = 200


@dataclass(frozen=True)
class RepositoryLocation:
    """Where the history of one repository can be had. At least one of the two is given.

    Attributes:
        local: a bare repository, a working clone, or a bundle file on this machine.
        url: to clone from when there is no local one.
    """

    local: Path | None = None
    url: str | None = None


@dataclass(frozen=True)
class BrokenRow:
    """One row that could not be used.

    Attributes:
        where: file and line, table and row, or repository.
        reason: one short sentence.
    """

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass
class LoadResult:
    """What a source gives.

    Attributes:
        issues: in a stable order, unique by instance_id, each with at least one gold file.
        repositories: location by `repo` label, for every repo of `issues`.
        skipped: how many candidates were left out, by reason; broken rows are counted here too, under "broken row".
        broken: the first broken rows with their reasons.
        left_out: candidates that were left out on purpose, with their reasons.
    """

    issues: list[Issue] = field(default_factory=list)
    repositories: dict[str, RepositoryLocation] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    broken: list[BrokenRow] = field(default_factory=list)
    left_out: list[BrokenRow] = field(default_factory=list)

    def skip(self, reason: str, where: str = "") -> None:
        """Count one candidate that was left out on purpose, and list it where its place is given."""
        self.skipped[reason] += 1
        if where:
            self.left_out.append(BrokenRow(where, reason))

    def reject(self, where: str, reason: str, count: int = 1, under: str = "broken row") -> None:
        """Count `count` unusable rows and list the place, up to a cap."""
        self.skipped[under] += count
        if len(self.broken) < LISTED_BROKEN_ROWS:
            self.broken.append(BrokenRow(where, " ".join(reason.split())[:300]))


class IssueSource(Protocol):
    """Anything that yields issues. Constructors take plain keyword arguments (conf/data, `args`) and do no work."""

    def load(self) -> LoadResult:
        """Read everything.

        Raises:
            DataError: the source as a whole cannot be used. Single bad rows are counted in the result instead.
        """
        ...


@runtime_checkable
class CheckedSource(IssueSource, Protocol):
    """A source that can say in a moment that what its arguments name is not there."""

    def check(self) -> None:
        """Refuse what `load` would refuse, as far as it can be told without reading the data.

        Raises:
            DataError: a file, folder or repository is missing.
        """
        ...


@runtime_checkable
class StatefulSource(IssueSource, Protocol):
    """A source whose issues depend on more, or on less, than the files and folders that its arguments name."""

    def state(self) -> dict[str, Any]:
        """Return a digest of what `load` would read: equal as long as it would give the same issues."""
        ...


def checked_suffixes(suffixes: Iterable[str], key: str) -> tuple[str, ...]:
    """File name endings of gold files; each must begin with a dot.

    Raises:
        DataError: the list is empty, is one string, or an ending has no dot.
    """
    if isinstance(suffixes, str):
        raise DataError(f"{key} must be a list, not {suffixes!r}", f"Write {key}: [{suffixes!r}]")
    chosen = tuple(suffixes)
    wrong = [
        suffix for suffix in chosen if not isinstance(suffix, str) or not suffix.startswith(".") or len(suffix) < 2
    ]
    if not chosen or wrong:
        raise DataError(f"{key} must list file name endings such as '.py', got {list(chosen)!r}")
    return chosen
