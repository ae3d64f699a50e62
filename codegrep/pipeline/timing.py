"""How long retrievers take, as throughput and as latency, which are two things.

Issues of a block are answered together, so the time of one of them says little about it. Throughput is a block's wall
time by its issues. Latency is measured apart: on a sample, one issue at a time, with nothing beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from codegrep.issues import Issue
from codegrep.issues.jsonl import json_lines

Row = dict[str, Any]
_FILE = "seconds.jsonl"


@dataclass(frozen=True)
class Seconds:
    """One answer's time.

    Attributes:
        instance_id: of the issue.
        alone: latency of this issue, answered alone; else throughput: wall time of its block by the block's issues.
    """

    instance_id: str
    alone: bool
    seconds: float


@dataclass
class Times:
    """What was measured of one worker, by instance id."""

    in_blocks: dict[str, float] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)

    def of(self, instance_id: str) -> Row:
        """Return the columns of a row; None where it was not measured."""
        return {"seconds_per_issue": self.in_blocks.get(instance_id), "latency_seconds": self.alone.get(instance_id)}


def sample(issues: Sequence[Issue], count: int) -> list[Issue]:
    """Choose so many issues, from as many repositories as there are; the same ones for every retriever and run."""
    by_repository: dict[str, list[Issue]] = {}
    for issue in sorted(issues, key=lambda issue: hashlib.sha256(issue.instance_id.encode()).digest()):
        by_repository.setdefault(issue.repo, []).append(issue)
    in_turn = [issue for row in zip_longest(*by_repository.values()) for issue in row if issue is not None]
    return in_turn[:count]


def with_warm_up(wanted: Sequence[Issue], issues: Sequence[Issue]) -> list[Issue]:
    """Return the issues to ask one at a time: another one first, which pays for what is loaded once."""
    others = [issue for issue in issues if issue not in wanted]
    return [(others or list(wanted))[0], *wanted]


def note(folder: Path, rows: Sequence[Row], *, alone: bool, of: Collection[str]) -> None:
    """Append the times of a block's rows to the folder's file.

    Args:
        folder: of the file.
        rows: as `map_batches` gives them.
        alone: the block was one issue and nothing ran beside it.
        of: instance ids that are wanted; the machine's failures are left out too.
    """
    with (folder / _FILE).open("a", encoding="utf-8") as out:
        for row in rows:
            rollout = row["rollout"]
            if rollout["instance_id"] not in of or rollout.get("error"):
                continue
            seconds = _own_seconds(row) if alone else row["seconds_per_issue"]
            one = Seconds(rollout["instance_id"], alone, seconds)
            out.write(json.dumps(asdict(one)) + "\n")


def read(folder: Path) -> Times:
    """Read the times in a folder; the latest of each."""
    times = Times()
    for row in read_lines(folder / _FILE):
        one = Seconds(**row)
        (times.alone if one.alone else times.in_blocks)[one.instance_id] = one.seconds
    return times


def read_lines(path: Path) -> list[Row]:
    """Return the rows of a JSON Lines file that is appended to; [] where there is none."""
    rows = []
    for _, line in json_lines(path) if path.is_file() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # the last line of a run that was killed while writing; the issue is asked again
    return rows


def _own_seconds(row: Row) -> float:
    """Add up generation and tools of a rollout."""
    return float(sum(turn["seconds_generation"] + turn["seconds_tools"] for turn in row["rollout"]["turns"]))
