"""Issues as JSON lines: what `prepare` leaves, and what later stages and the reward lab read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from codegrep.issues.issue import Entity, Issue, LineRange


def write_issues(path: Path, sides: Mapping[str, Sequence[Issue]]) -> None:
    """Write one JSON object a line: the issue's side ("train", "held_out", …), then the fields of Issue."""
    partial = path.with_suffix(".partial")
    rows = [{"side": side, **asdict(issue)} for side, issues in sides.items() for issue in issues]
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    partial.replace(path)


def read_issues(path: Path) -> list[Issue]:
    """Read the issues of all sides."""
    return [issue_from_json(line) for _, line in json_lines(path)]


def json_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines of a JSONL file that are not blank; an editor may have put a byte-order mark before them.

    Only a line feed ends a line: str.splitlines would also cut at U+2028 and the like inside of JSON text.
    """
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def issue_from_json(text: str) -> Issue:
    """One Issue from its JSON text."""
    row = json.loads(text)
    row.pop("side", None)
    row["gold_files"] = tuple(row["gold_files"])
    row["gold_ranges"] = tuple(LineRange(**r) for r in row["gold_ranges"])
    known = row.get("gold_entities")
    row["gold_entities"] = None if known is None else tuple(Entity(**entity) for entity in known)
    return Issue(**row)
