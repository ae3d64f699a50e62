"""Search in the index of a tree: by words, by static vectors, or by both."""

from __future__ import annotations

import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from codegrep.errors import InfrastructureError
from codegrep.index.fusion import Fusion, candidates, load_fusion
from codegrep.index.statement import statement_of
from codegrep.index.terms import count_terms
from codegrep.index.tree import IndexedUnit, TreeIndex

_RECIPROCAL_K = 20
_PATTERN_SECONDS = 10.0
_PATTERN_BYTES = 64 << 20  # of what ripgrep prints
# A further unit of a file ranks behind the first unit of files whose odds are less than e times lower.
_FURTHER_UNIT = 1.0
Scores = NDArray[np.float64]


class PatternError(ValueError):
    """A pattern is no regular expression, or matches too much."""


@dataclass(frozen=True)
class Hit:
    """A unit and its score; scores of one search can be compared."""

    unit: IndexedUnit
    score: float


class Index(Protocol):
    """Ranks the units of one tree."""

    def search(self, query: str, k: int, path: str | None = None, pattern: str | None = None) -> list[Hit]:
        """Find at most k units, best first.

        Args:
            query: words, identifiers, or the statement of an issue.
            k: most units.
            path: only below this folder, in this file, or in files that match this glob.
            pattern: only units that hold a match of this regular expression (ripgrep's).

        Raises:
            PatternError: the pattern is not one, or matches too many lines.
            InfrastructureError: ripgrep cannot be run.
        """
        ...


class TreeSearch(ABC):
    """What all indexes of a tree have in common; an Index.

    Args:
        tree: its units.
        root: folder of the tree, for patterns.
        ripgrep: the program, for patterns.
    """

    def __init__(self, tree: TreeIndex, root: Path | None = None, ripgrep: str | None = None) -> None:
        self.tree = tree
        self._root = root
        self._ripgrep = ripgrep

    @abstractmethod
    def scores(self, query: str, allowed: NDArray[np.bool_]) -> Scores:
        """(n,) score of every unit; -inf for units that are not found. allowed: (files,) files that are ranked."""

    def search(self, query: str, k: int, path: str | None = None, pattern: str | None = None) -> list[Hit]:
        """See `Index.search`."""
        allowed = self.tree.chosen(path)
        found = allowed[self.tree.file_of]
        if pattern:
            found = self._matching(pattern, allowed)
            allowed = np.bincount(self.tree.file_of[found], minlength=len(allowed)) > 0
        scores = np.where(found, self.scores(query, allowed), -np.inf)
        return [Hit(self.tree.unit(int(n)), float(scores[n])) for n in _ranked(scores)[:k]]

    def rank_files(self, query: str, k: int, allowed: NDArray[np.bool_] | None = None) -> list[tuple[str, float]]:
        """Return the k best files, by their best units. allowed: (files,) which of them are ranked, or all."""
        if not len(self.tree):
            return []
        chosen = np.ones(len(self.tree.paths), bool) if allowed is None else allowed
        scores = np.where(chosen, self.tree.best_of_files(self.scores(query, chosen)), -np.inf)
        best = np.argsort(-scores, kind="stable")[:k]
        return [(self.tree.paths[n], float(scores[n])) for n in best if scores[n] > -np.inf]

    def _matching(self, pattern: str, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(n,) units with a line that matches."""
        if self._root is None or self._ripgrep is None:
            raise InfrastructureError("an index without a folder and ripgrep has no patterns")
        lines = _matching_lines(self._ripgrep, pattern, self._root)
        matching = np.zeros(len(self.tree), bool)
        for file in np.flatnonzero(allowed):
            numbers = lines.get(self.tree.paths[file])
            if numbers is not None:
                for n in range(self.tree.first_unit[file], self.tree.first_unit[file + 1]):
                    unit = self.tree.unit(n)
                    matching[n] = bool(((numbers >= unit.start) & (numbers <= unit.end)).any())
        return matching


class Bm25Index(TreeSearch):
    """BM25 over the words of the units, identifiers split."""

    def scores(self, query: str, allowed: NDArray[np.bool_]) -> Scores:
        """See `TreeSearch.scores`; a unit without a word of the query is not found."""
        scores = self.tree.words.score(count_terms([query]).terms)
        return np.where(scores != 0, scores, -np.inf)


class StaticIndex(TreeSearch):
    """Cosine of static vectors, over all units."""

    def scores(self, query: str, allowed: NDArray[np.bool_]) -> Scores:
        """See `TreeSearch.scores`; a query without a known word finds nothing."""
        asked = self.tree.model.embed_query(query)
        if not asked.any():
            return np.full(len(self.tree), -np.inf)
        return np.asarray(self.tree.vectors @ asked, np.float64)


class ReciprocalIndex(TreeSearch):
    """Reciprocal rank fusion (Cormack et al. 2009) of other indexes of the same tree: Σ 1 / (K + rank)."""

    def __init__(self, tree: TreeIndex, root: Path | None = None, ripgrep: str | None = None) -> None:
        super().__init__(tree, root, ripgrep)
        self._others: list[TreeSearch] = [Bm25Index(tree), StaticIndex(tree)]

    def scores(self, query: str, allowed: NDArray[np.bool_]) -> Scores:
        """See `TreeSearch.scores`."""
        total = np.zeros(len(self.tree))
        for other in self._others:
            scores = np.where(allowed[self.tree.file_of], other.scores(query, allowed), -np.inf)
            order = _ranked(scores)
            total[order] += 1 / (_RECIPROCAL_K + 1 + np.arange(len(order)))
        return np.where(total > 0, total, -np.inf)


class HybridIndex(TreeSearch):
    """Files by learned fusion, their units by reciprocal ranks.

    The best unit of a file has the file's score, each further one _FURTHER_UNIT less.
    """

    def __init__(
        self, tree: TreeIndex, root: Path | None = None, ripgrep: str | None = None, fusion: Fusion | None = None
    ) -> None:
        super().__init__(tree, root, ripgrep)
        self._fusion = fusion or load_fusion()
        self._units = ReciprocalIndex(tree)

    def scores(self, query: str, allowed: NDArray[np.bool_]) -> Scores:
        """See `TreeSearch.scores`."""
        found = np.full(len(self.tree), -np.inf)
        ranked = candidates(self.tree, statement_of(query), allowed)
        units = self._units.scores(query, allowed)
        for file, score in zip(ranked.files, self._fusion.score(ranked.features), strict=True):
            own = slice(self.tree.first_unit[file], self.tree.first_unit[file + 1])
            place = np.empty(own.stop - own.start)
            place[np.argsort(-units[own], kind="stable")] = np.arange(len(place))
            found[own] = score - _FURTHER_UNIT * place
        return found


INDEXES: Mapping[str, type[TreeSearch]] = {
    "bm25": Bm25Index,
    "static": StaticIndex,
    "reciprocal": ReciprocalIndex,
    "hybrid": HybridIndex,
}


def _ranked(scores: Scores) -> NDArray[np.intp]:
    """Return what is found, best first; equal ones in their order."""
    found = np.flatnonzero(scores > -np.inf)
    return found[np.argsort(-scores[found], kind="stable")]


def _matching_lines(ripgrep: str, pattern: str, root: Path) -> dict[str, NDArray[np.int64]]:
    """Numbers of the matching lines by path."""
    command = [
        ripgrep,
        "--no-config",
        "--no-messages",
        "--no-heading",
        "--line-number",
        "--null",
        "--hidden",
        "--no-ignore",
    ]
    # A column of a line is enough: ripgrep prints a note in place of longer ones.
    command += ["--glob=!.git", "--max-columns=1", "--regex-size-limit=20M", f"--regexp={pattern}", "--", "."]
    try:
        process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise InfrastructureError(f"ripgrep cannot be run: {error}") from error
    timer = threading.Timer(_PATTERN_SECONDS, process.kill)
    timer.start()
    with process:
        assert process.stdout is not None and process.stderr is not None
        output = process.stdout.read(_PATTERN_BYTES + 1)
        if len(output) > _PATTERN_BYTES:
            process.kill()
        problem = process.stderr.read()
    timer.cancel()
    if len(output) > _PATTERN_BYTES:
        raise PatternError("it matches too many lines")
    if process.returncode < 0:
        raise InfrastructureError("ripgrep did not answer for a pattern")
    if process.returncode == 2 and problem:
        raise PatternError(" ".join(problem.decode("utf-8", "replace").split())[:200])
    lines: dict[str, list[int]] = {}
    for row in output.decode("utf-8", "surrogateescape").split("\n"):
        path, separator, rest = row.partition("\0")
        number = rest.partition(":")[0]
        if separator and number.isdigit():
            lines.setdefault(path.removeprefix("./"), []).append(int(number))
    return {path: np.array(numbers) for path, numbers in lines.items()}
