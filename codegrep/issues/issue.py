"""The one record that every source of issues produces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EntityKind = Literal["class", "function"]


@dataclass(frozen=True, order=True)
class Entity:
    """A class or function of a source file.

    Attributes:
        path: repo-relative POSIX path.
        name: qualified with dots inside the file: "Model", "Model.save", "outer.inner".
        kind: methods are functions.
    """

    path: str
    name: str
    kind: EntityKind

    @property
    def label(self) -> str:
        """`path:name`, as answers write it; the kind is not part of it."""
        return f"{self.path}:{self.name}"


@dataclass(frozen=True, order=True)
class LineRange:
    """Lines of one file, 1-based, both ends included.

    Attributes:
        path: repo-relative POSIX path.
        start: first line, >= 1.
        end: last line, >= start.
    """

    path: str
    start: int
    end: int


@dataclass(frozen=True)
class Issue:
    """One retrieval problem, with the field names of SWE-bench.

    Attributes:
        instance_id: unique within a run.
        repo: "owner/name"; for a local repository any unique "owner/name"-shaped label.
        base_commit: full hash of the commit whose tree is searched.
        problem_statement: the text that the agent is given.
        patch: the gold patch as a unified diff; "" where a source knows only the files.
        gold_files: repo-relative POSIX paths that should be found, all existing at base_commit, sorted.
        gold_ranges: pre-image line ranges of the gold patch's hunks (CodeGrep, App. B); may be empty.
        gold_entities: classes and functions that the gold patch touches, sorted; None where they are not known, which
            is not the same as none (`codegrep.issues.entities`).
        source: name of the source ("swe_bench", "git_history", "demo").
        created_at: ISO date, or "".
    """

    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str
    patch: str = ""
    gold_files: tuple[str, ...] = ()
    gold_ranges: tuple[LineRange, ...] = field(default=())
    source: str = ""
    created_at: str = ""
    gold_entities: tuple[Entity, ...] | None = None


_SAMPLE = re.compile(r"@[1-9]\d*\Z")


def sample_id(instance_id: str, number: int) -> str:
    """Id of an issue's sample with targets of its own, from 1: "id", "id@2", …."""
    return instance_id if number == 1 else f"{instance_id}@{number}"


def issue_of(issues: Mapping[str, Issue], instance_id: str) -> Issue | None:
    """Return the issue of an id, which may be that of one of its samples; None where it is not known.

    Of a sample, everything but `gold_files` is that of its issue.
    """
    return issues.get(instance_id) or issues.get(_SAMPLE.sub("", instance_id))
