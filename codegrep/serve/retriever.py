"""One text, one answer: the files of a working tree that a text is about. What `import codegrep` gives."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from codegrep.errors import ConfigError
from codegrep.index.search import INDEXES, Hit, TreeSearch
from codegrep.serve.evidence import reasons
from codegrep.serve.working_tree import Progress, WorkingTree, line_count, listing

if TYPE_CHECKING:
    from codegrep.rollout.record import Rollout
    from codegrep.serve.agent import Agent, OnTurn

MAX_TEXT, MAX_PATTERN, MAX_ANSWERS = 20_000, 1_000, 100
"""Characters of a text that are looked at; of a path or pattern that is taken; files of an answer."""
_UNITS_A_FILE = 8  # units that are looked at for each file that is asked for
# Measured on Python files: vectors, postings and description of a unit, those kept of its blob included.
_BYTES_A_UNIT = 5_000


@dataclass(frozen=True)
class Answer:
    """One file of an answer.

    Attributes:
        path: relative to the repository, with slashes.
        start, end: lines of its best place, 1-based, both included.
        name: of the definition there, qualified; "" outside definitions.
        evidence: the head of that definition in one line.
        score: comparable within one answer; of an agent's answer, 1 for the first file and less for each further one.
        why: what speaks for the file, the weightiest first; only where it was asked for.
    """

    path: str
    start: int
    end: int
    name: str
    evidence: str
    score: float
    why: tuple[str, ...] = ()


class Retriever:
    """Finds files in working trees; safe for several threads. Made by `Retriever.load`.

    Indexes of the trees stay in memory, the least recently used ones go first, and are brought up to date at every
    search: uncommitted files count, what git ignores does not.

    Args:
        index: name in codegrep.index.search.INDEXES.
        agent: that answers in place of the index; the index then finds the lines of its files.
        memory_mb: megabytes that indexes may take; the one in use stays in any case.
    """

    def __init__(self, index: str = "hybrid", agent: Agent | None = None, memory_mb: int = 400) -> None:
        if index not in INDEXES:
            raise ConfigError(f"there is no retriever {index!r}", f"Known: {', '.join(sorted(INDEXES))}")
        self.index_name = index
        self._agent = agent
        self._most_units = memory_mb * 1_000_000 // _BYTES_A_UNIT
        self._lock = threading.Lock()
        self._trees: OrderedDict[tuple[Path, bool], _Searched] = OrderedDict()

    @classmethod
    def load(
        cls, name: str = "hybrid", *, outputs: str | Path = "outputs", tracking_uri: str = "", memory_mb: int = 400
    ) -> Retriever:
        """Load a retriever.

        Args:
            name: "hybrid", "bm25", "static" or "reciprocal", which need no model; or a policy: "models:/NAME@ALIAS",
                "models:/NAME/VERSION" or "runs:/ID" in MLflow, a folder with a policy or a model, or a hub id.
            outputs: folder of mlflow.db and of fetched models, for policies.
            tracking_uri: MLflow server in place of that file.
            memory_mb: megabytes that indexes may take.

        Raises:
            ConfigError: there is no such retriever.
            ModelError: there is no such model, or it cannot be used.
            InfrastructureError: MLflow cannot be reached.
        """
        if name in INDEXES:
            return cls(name, memory_mb=memory_mb)
        if "/" not in name and ":" not in name and not Path(name).is_dir():
            raise ConfigError(
                f"there is no retriever {name!r}", f"Use {', '.join(sorted(INDEXES))}, models:/NAME@ALIAS or a folder"
            )
        from codegrep.serve.agent import Agent  # torch and transformers

        return cls("hybrid", Agent.load(name, Path(outputs), tracking_uri), memory_mb)

    @property
    def is_agent(self) -> bool:
        """Whether a policy answers."""
        return self._agent is not None

    def search(
        self,
        text: str,
        repo: str | Path = ".",
        k: int = 5,
        *,
        path: str | None = None,
        pattern: str | None = None,
        tests: bool = False,
        why: bool = False,
        progress: Progress = lambda done, total: None,
        on_turn: OnTurn | None = None,
    ) -> list[Answer]:
        """Rank the files of a working tree by a text, best first. Every path and line exists in the tree.

        Args:
            text: an issue, an error message, a question; MAX_TEXT characters count.
            repo: a git repository, or any folder.
            k: files at most, MAX_ANSWERS at most.
            path: only below this folder, or files that match this glob.
            pattern: only places that hold a match of this regular expression (ripgrep's).
            tests: test files too.
            why: say what speaks for each file.
            progress: told how many changed files of how many are indexed.
            on_turn: of an agent: told the number and the results of each turn with calls.

        Raises:
            RepositoryError: there is no such folder, or it cannot be read.
            ValueError: the pattern is no regular expression, or an argument is out of bounds.
            InfrastructureError: ripgrep or the engine failed.
        """
        if not text.strip():
            raise ValueError("the text is empty")
        if not 1 <= k <= MAX_ANSWERS:
            raise ValueError(f"k is {k}, and answers have 1 to {MAX_ANSWERS} files")
        if self._agent is not None and (path or pattern):
            raise ValueError("a model searches the whole tree: leave path and pattern out, or the model")
        index, root = self._index(repo, tests, progress)
        if self._agent is not None:
            rollout = self._agent.rollout(text[:MAX_TEXT], root, on_turn)
            found = self._checked(rollout, index, root, text[:MAX_TEXT])[:k]
        else:
            found = first_of_files(hits(index, text, k * _UNITS_A_FILE, path, pattern))[:k]
        if why:
            said = reasons(index.tree, text[:MAX_TEXT], [answer.path for answer in found])
            found = [replace(answer, why=said.get(answer.path, ())) for answer in found]
        return found

    def places(
        self,
        query: str,
        repo: str | Path = ".",
        k: int = 10,
        *,
        path: str | None = None,
        pattern: str | None = None,
        progress: Progress = lambda done, total: None,
    ) -> list[Answer]:
        """Rank definitions and chunks, several of a file, by the index. Arguments and errors as for `search`."""
        index, _ = self._index(repo, False, progress)
        return [_answer(hit) for hit in hits(index, query, k, path, pattern)]

    def rollout(self, text: str, repo: str | Path = ".", *, on_turn: OnTurn | None = None) -> Rollout:
        """Let the policy search a working tree; return the record of its turns, calls and tokens.

        Args:
            text: an issue.
            repo: a git repository, or any folder.
            on_turn: told the number and the results of each turn with calls.

        Raises:
            ConfigError: this retriever has no policy.
            RepositoryError: there is no such folder.
        """
        if self._agent is None:
            raise ConfigError(f"the retriever {self.index_name} has no policy to roll out", "Load a model")
        return self._agent.rollout(text[:MAX_TEXT], Path(repo).absolute(), on_turn)

    def refresh(self, repo: str | Path = ".", *, progress: Progress = lambda done, total: None) -> int:
        """Index what changed in a working tree; return the number of its files."""
        return len(self._index(repo, False, progress)[0].tree.paths)

    def loaded(self) -> dict[str, int]:
        """Units in memory by folder."""
        with self._lock:
            return {str(root): tree.units for (root, _), tree in self._trees.items()}

    def _index(self, repo: str | Path, tests: bool, progress: Progress) -> tuple[TreeSearch, Path]:
        root = Path(repo).expanduser().absolute()
        key = (root, tests)
        with self._lock:
            searched = self._trees.get(key) or self._trees.setdefault(key, _Searched(WorkingTree(root, tests)))
            self._trees.move_to_end(key)
        index = searched.index(INDEXES[self.index_name], progress)
        with self._lock:
            while len(self._trees) > 1 and sum(tree.units for tree in self._trees.values()) > self._most_units:
                self._trees.popitem(last=False)
        return index, root

    def _checked(self, rollout: Rollout, index: TreeSearch, root: Path, text: str) -> list[Answer]:
        """Return the files of a rollout's answer that are in the tree, each with lines that it has."""
        from codegrep.serve.agent import answered_ranges

        ranges = answered_ranges(rollout)
        present = set(listing(root)[0])
        found: list[Answer] = []
        for name in rollout.answer:
            if name not in present:
                continue
            lines = line_count(root / name)
            best = hits(index, text, 1, name, None) if name in index.tree.paths else []
            answer = _answer(best[0]) if best else Answer(name, 1, lines, "", "", 0.0)
            start, end = ranges.get(name, (0, 0))
            if 0 < start <= end <= lines:
                answer = replace(answer, start=start, end=end, name="", evidence="")
            found.append(replace(answer, score=1 / (1 + len(found))))
        return found


class _Searched:
    """A working tree and the index over it, made again when the tree has changed."""

    def __init__(self, tree: WorkingTree) -> None:
        self._tree = tree
        self._lock = threading.Lock()
        self._index: TreeSearch | None = None

    @property
    def units(self) -> int:
        return 0 if self._index is None else len(self._index.tree)

    def index(self, kind: type[TreeSearch], progress: Progress) -> TreeSearch:
        tree = self._tree.index(progress)
        with self._lock:
            if self._index is None or self._index.tree is not tree:
                from codegrep.sandbox.tools.search import find_ripgrep

                made = kind(tree, self._tree.root, find_ripgrep())
                if len(tree):
                    made.search("anything", 1)  # what is made at the first search is made here
                self._index = made
                _return_memory()
            return self._index


def _return_memory() -> None:
    """Give back to the system what making an index has freed; glibc alone keeps it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def hits(index: TreeSearch, text: str, k: int, path: str | None, pattern: str | None) -> list[Hit]:
    """Search within the bounds of what is asked.

    Raises:
        ValueError: path or pattern is too long, or no regular expression.
    """
    if not len(index.tree):
        return []
    if max(len(path or ""), len(pattern or "")) > MAX_PATTERN:
        raise ValueError(f"path and pattern have at most {MAX_PATTERN} characters")
    if "\0" in (pattern or ""):
        raise ValueError("the pattern holds a NUL")
    try:
        return index.search(text[:MAX_TEXT], min(k, MAX_ANSWERS * _UNITS_A_FILE), path, pattern)
    except ValueError as error:
        raise ValueError(f"the pattern {pattern!r} is no regular expression: {error}") from None


def first_of_files(found: list[Hit]) -> list[Answer]:
    """Of each file its best hit."""
    answers: dict[str, Answer] = {}
    for hit in found:
        answers.setdefault(hit.unit.path, _answer(hit))
    return list(answers.values())


def _answer(hit: Hit) -> Answer:
    unit = hit.unit
    return Answer(unit.path, unit.start, unit.end, unit.name, unit.signature or unit.docstring, hit.score)
