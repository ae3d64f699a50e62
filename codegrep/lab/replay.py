"""Stored rollouts under a set of designs: read, score, measure. No model, no GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codegrep.errors import DataError
from codegrep.issues.issue import Issue
from codegrep.issues.jsonl import issue_from_json, json_lines
from codegrep.lab.designs import Design
from codegrep.lab.measures import Agreement, DesignMeasures, agreements, measure, properties
from codegrep.lab.pooled import pooled_notes
from codegrep.lab.replay_judge import OpenJudge, ReplayJudge
from codegrep.lab.rescored import Rescored, rescore
from codegrep.lab.stored import GroupBy, Stored, read_stored, rollout_folders


@dataclass(frozen=True)
class Replay:
    """The result of a replay.

    Attributes:
        stored, rescored: the rollouts and their rewards, for figures.
        designs, agreements: the measures.
        notes: what a reader has to know, one sentence each.
    """

    stored: Stored
    rescored: tuple[Rescored, ...]
    designs: tuple[DesignMeasures, ...]
    agreements: tuple[Agreement, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the measures as plain data."""
        return {
            "rollouts": len(self.stored),
            "groups": len(self.stored.group_names),
            "left_out": dict(self.stored.left_out),
            "notes": list(self.notes),
            "designs": [asdict(measures) for measures in self.designs],
            "agreements": [asdict(agreement) for agreement in self.agreements],
        }


def replay(
    places: Sequence[Path],
    designs: Sequence[Design],
    *,
    issues: Mapping[str, Issue] | None = None,
    judgements: Mapping[str, bool] | None = None,
    open_judge: OpenJudge | None = None,
    group_by: GroupBy = "step",
    on_read: Callable[[int], object] = lambda rows: None,
    on_scored: Callable[[int], object] = lambda rows: None,
) -> Replay:
    """Read the rollouts below `places` and score them under every design.

    Args:
        places: outputs folders, artifacts, or folders with rollouts.
        designs: each scores every rollout.
        issues: for gold lines and entities; None looks for what the runs have left beside their rollouts.
        judgements: of a judge on answers, by rollout id.
        open_judge: a judge that is asked for judgements that are needed and not known; None asks nobody.
        group_by: as in `read_stored`.
        on_read, on_scored: told of rows as they are read (and judged), and scored under one design.

    Raises:
        DataError: there are no rollouts.
    """
    folders = rollout_folders(places)
    needed = frozenset[str]().union(*(design.needs for design in designs))
    known = issues if issues is not None else (find_issues(folders) if needed else {})
    judge = ReplayJudge(open_judge, designs) if open_judge is not None else None
    stored = read_stored(folders, known, judgements, judge=judge, group_by=group_by, advance=on_read)
    rescored = tuple(rescore(stored, design, on_scored) for design in designs)
    of_rollouts = properties(stored)
    return Replay(
        stored,
        rescored,
        tuple(measure(stored, one, of_rollouts) for one in rescored),
        tuple(agreements(stored, rescored)),
        (*pooled_notes(folders, stored), *(judge.notes() if judge else ()), *_notes(stored, designs, rescored, needed)),
    )


def read_issues(path: Path) -> dict[str, Issue]:
    """Return issues by id, from an issues.jsonl or a folder that holds one (the artifact of `prepare`).

    Raises:
        DataError: there is none, or a line is no issue.
    """
    file = path / "issues.jsonl" if path.is_dir() else path
    try:
        issues = [issue_from_json(line) for _, line in json_lines(file)]
    except OSError as failure:
        raise DataError(f"{file} cannot be read: {failure.strerror}", "Give the artifact of prepare") from failure
    except (ValueError, KeyError, TypeError) as failure:
        raise DataError(f"{file} holds a line that is no issue: {failure}", "Give the artifact of prepare") from failure
    return {issue.instance_id: issue for issue in issues}


def find_issues(folders: Sequence[Path]) -> dict[str, Issue]:
    """Return issues that runs have left beside rollouts; of several records of one issue, the one that knows most."""
    best: dict[str, Issue] = {}
    roots = {folder.parent.parent for folder in folders}
    for file in sorted(file for root in roots for file in root.glob("prepare-*/issues.jsonl")):
        for name, issue in read_issues(file).items():
            held = best.get(name)
            if held is None or _knowledge(issue) > _knowledge(held):
                best[name] = issue
    return best


def read_judgements(path: Path) -> dict[str, bool]:
    """Return a judge's judgements by rollout id, from JSONL with rollout_id and judgement (true or false) a line.

    Raises:
        DataError: the file cannot be read, or a line has another form.
    """
    judgements: dict[str, bool] = {}
    try:
        for number, line in json_lines(path):
            row = json.loads(line)
            if not isinstance(row, dict) or not isinstance(row.get("judgement"), bool) or "rollout_id" not in row:
                raise DataError(
                    f"{path}, line {number}: no judgement", 'A line is {"rollout_id": "…", "judgement": true}'
                )
            judgements[str(row["rollout_id"])] = row["judgement"]
    except OSError as failure:
        raise DataError(f"{path} cannot be read: {failure.strerror}", "Check --judgements") from failure
    except ValueError as failure:
        raise DataError(f"{path} is no JSONL: {failure}", "Check --judgements") from failure
    return judgements


def _knowledge(issue: Issue) -> tuple[bool, bool]:
    return bool(issue.gold_ranges), issue.gold_entities is not None


def _notes(
    stored: Stored, designs: Sequence[Design], rescored: Sequence[Rescored], needed: frozenset[str]
) -> list[str]:
    total = len(stored)
    notes = [f"{count} x {reason}: left out" for reason, count in stored.left_out.items()]
    sizes = np.bincount(stored.groups)
    alone = int((sizes == 1).sum())
    if alone:
        notes.append(f"{alone} of {len(sizes)} groups have one rollout: nothing to compare (try --group issue)")
    lines = sum(1 for outcome in stored.outcomes if outcome.gold_ranges)
    if "line_ranges" in needed and lines < total:
        users = ", ".join(d.name for d in designs if "line_ranges" in d.needs)
        notes.append(
            f"{total - lines} of {total} rollouts have no gold lines: the line score of {users} is 1 there without "
            "answered lines and 0 with"
        )
    known = sum(1 for outcome in stored.outcomes if outcome.gold_entities is not None)
    if "entities" in needed and known < total:
        users = ", ".join(d.name for d in designs if "entities" in d.needs)
        notes.append(f"classes and functions are not known for {total - known} of {total} rollouts ({users})")
    judged = sum(1 for outcome in stored.outcomes if outcome.judgement is not None)
    if "judgement" in needed and judged < total:
        notes.append(f"{total - judged} of {total} answers have no judgement (--judgements, --judge)")
    notes += [
        f"{one.design.name} failed on {one.failed} rollouts, first: {one.first_failure}"
        for one in rescored
        if one.failed
    ]
    return notes
