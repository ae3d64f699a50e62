"""Pairs that retrievers are trained on: the message of a commit, the functions it changes in its parent's tree."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from codegrep.index.digest import unit_text
from codegrep.index.history import commit_files
from codegrep.index.terms import words_of
from codegrep.index.units import Unit, units_of
from codegrep.issues.git import Repo, blob, open_repository
from codegrep.issues.git_history import GitHistory
from codegrep.issues.issue import Issue
from codegrep.issues.paths import is_test_path
from codegrep.issues.repositories import list_repositories
from codegrep.issues.roles import known_roles

_DEFINITION = re.compile(r"(\s*)(?:async\s+def|def|class)\s+(\w+)")


def commits_of(folder: Path, role: str, most: int, only_fixes: bool, only: Sequence[str] = ()) -> list[Issue]:
    """Return commits of the repositories of a role, at most `most` of each, as issues."""
    here = {label.lower() for label in list_repositories(folder)}
    chosen = sorted(known_roles().named([role]) & here & ({name.lower() for name in only} if only else here))
    source = GitHistory(str(folder), include=chosen, max_per_repository=most, only_fixes=only_fixes)
    return source.load().issues


def changed_units(issue: Issue, repo: Repo) -> list[Unit]:
    """Functions and classes of the parent that hold changed lines."""
    units: dict[tuple[str, int], Unit] = {}
    for path in issue.gold_files:
        try:
            lines = blob(repo, f"{issue.base_commit}:{path}").decode("utf-8", "replace").split("\n")
        except ValueError:
            continue
        for span in issue.gold_ranges:
            if span.path == path and (found := _definition_at(path, lines, span.start - 1, span.end - 1)):
                units.setdefault((path, found.start), found)
    return list(units.values())[:8]


def _definition_at(path: str, lines: list[str], first: int, last: int) -> Unit | None:
    """Return the innermost definition around a row of Python, found by indentation."""
    names: list[str] = []
    top = -1
    indent = min((_indent(line) for line in lines[first : last + 1] if line.strip()), default=0)
    for row in range(min(first, len(lines) - 1), -1, -1):
        found = _DEFINITION.match(lines[row])
        if found and (len(found[1]) < indent or (row == first and len(found[1]) == indent)):
            names.insert(0, found[2])
            top = row if top < 0 else top
            indent = len(found[1])
        if indent == 0:
            break
    if top < 0:
        return None
    own = _indent(lines[top])
    end = top + 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > own or lines[end].lstrip()[:1] in ")]"):
        end += 1
    units = units_of(path, textwrap.dedent("\n".join(lines[top:end])).encode("utf-8", "replace"))
    if not units:
        return None
    unit = units[0]
    return Unit(path, ".".join(names), unit.kind, top + 1, end, unit.signature, unit.docstring, unit.body)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class Texts:
    """Word counts of many texts, in one array after another."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary
        self._ids: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, *counted: Counter[str]) -> int:
        """Add a text: sums of ln(1 + count) over several counts of words."""
        ids = [self.vocabulary.setdefault(word, len(self.vocabulary)) for counts in counted for word in counts]
        numbers = [count for counts in counted for count in counts.values()]
        self._ids.append(np.array(ids, np.int32))
        self._weights.append(np.log1p(np.array(numbers, np.float32)))
        return len(self._ids) - 1

    def arrays(self) -> dict[str, np.ndarray]:
        """ids, weights, starts."""
        starts = np.cumsum([0, *map(len, self._ids)])
        return {"ids": np.concatenate(self._ids), "weights": np.concatenate(self._weights), "starts": starts}


def material(folder: Path, issues: Sequence[Issue], snapshots: int) -> Iterator[dict[str, object]]:
    """For stretches of each repository's history: queries, their changed units, and all units of one tree.

    The tree stands for those of all commits of its stretch, so that negatives are of the tree that is searched.
    """
    places = list_repositories(folder)
    by_repo: dict[str, list[Issue]] = {}
    for issue in sorted(issues, key=lambda issue: issue.created_at):
        by_repo.setdefault(issue.repo, []).append(issue)
    for repo, commits in by_repo.items():
        counted: dict[str, list[Counter[str]]] = {}
        with open_repository(places[repo]) as opened:
            for part in np.array_split(np.arange(len(commits)), snapshots):
                stretch = [commits[i] for i in part]
                if stretch:
                    yield {"repo": repo, **_stretch(stretch, opened, counted)}


def _stretch(commits: list[Issue], repo: Repo, counted: dict[str, list[Counter[str]]]) -> dict[str, object]:
    queries = []
    for issue in commits:
        units = changed_units(issue, repo)
        if units:
            subject = issue.problem_statement.partition("\n")[0]
            words = [(unit.path, _counted(unit_text(unit)), _counted(unit.path)) for unit in units]
            queries.append((issue.gold_files, _counted(issue.problem_statement), _counted(subject), words))
    tree = []
    for file in commit_files(repo, commits[len(commits) // 2].base_commit):
        if file.path.endswith(".py") and not is_test_path(file.path):
            if file.blob not in counted:
                counted[file.blob] = [_counted(unit_text(unit)) for unit in units_of(file.path, file.read())]
            tree.append((file.path, _counted(file.path), counted[file.blob]))
    return {"queries": queries, "tree": tree}


def _counted(text: str) -> Counter[str]:
    return Counter(words_of(text))
