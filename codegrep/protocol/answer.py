"""The answer block: `<answer>{"files": [...], "line_ranges": [[file, start, end], ...]}</answer>` (CodeGrep 3.2).

The paper gives only the form. Readings chosen here: `line_ranges` may be left out; a range may also be an object with
the keys file (or path), start and end; an entry that cannot be read is left out and named in `Answer.error`, the
others stand.

For designs with class and function scores the answer may have `"entities": ["path/a.py:Class.method", ...]`, the form
of colgrep's submissions (arXiv 2610.05099). An answer does not say what a name is: one whose last part begins with a
capital letter is taken for a class, any other for a function; where gold has the name, gold decides
(`codegrep.metrics.scores`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codegrep.issues.issue import Entity, LineRange
from codegrep.protocol.paths import normalise_path, normalise_paths

#: Longest "path:name" that is read; the classes around a name are looked up one by one.
MAX_ENTITY_CHARS = 2000


@dataclass(frozen=True)
class Answer:
    """A readable answer.

    Attributes:
        files: normalised repo-relative paths, best first, duplicates removed.
        ranges: normalised line ranges, in the model's order, duplicates kept (they are scored as given).
        entities: classes and functions, in the model's order, duplicates removed.
        error: "" or, in one line, which entries were left out and why.
    """

    files: tuple[str, ...]
    ranges: tuple[LineRange, ...] = ()
    error: str = ""
    entities: tuple[Entity, ...] = ()


def read_answer(value: Any, worktree: str = "") -> Answer | str:
    """Make an Answer of the parsed JSON of one answer block, or say in one line why it is none.

    Args:
        value: any JSON value.
        worktree: see `normalise_path`.
    """
    if not isinstance(value, Mapping):
        return "the answer is not a JSON object"
    files = value.get("files")
    if not isinstance(files, list):
        return 'the answer has no list "files"'
    names = [name for name in files if isinstance(name, str) and normalise_path(name, worktree)]
    errors = []
    if len(names) < len(files):
        errors.append(f"{len(files) - len(names)} of {len(files)} files are no paths")
    entries = value.get("line_ranges", [])
    ranges: list[LineRange] = []
    if isinstance(entries, list):
        read = [_read_range(entry, worktree) for entry in entries]
        ranges = [entry for entry in read if entry is not None]
        if len(ranges) < len(entries):
            errors.append(f"{len(entries) - len(ranges)} of {len(entries)} line ranges are not [file, start, end]")
    else:
        errors.append("line_ranges is not a list")
    named = value.get("entities", [])
    entities: list[Entity] = []
    if isinstance(named, list):
        known = [_read_entity(entry, worktree) for entry in named]
        entities = [entry for entry in known if entry is not None]
        if len(entities) < len(named):
            errors.append(f'{len(named) - len(entities)} of {len(named)} entities are not "path:name"')
    else:
        errors.append("entities is not a list")
    return Answer(normalise_paths(names, worktree), tuple(ranges), "; ".join(errors), tuple(dict.fromkeys(entities)))


def _read_range(entry: Any, worktree: str) -> LineRange | None:
    if isinstance(entry, Mapping):
        entry = [entry.get("file", entry.get("path")), entry.get("start"), entry.get("end")]
    if not isinstance(entry, list) or len(entry) != 3:
        return None
    name, start, end = entry
    if not isinstance(name, str) or not _is_line(start) or not _is_line(end) or end < start:
        return None
    path = normalise_path(name, worktree)
    return LineRange(path, start, end) if path else None


def _read_entity(entry: Any, worktree: str) -> Entity | None:
    if not isinstance(entry, str) or len(entry) > MAX_ENTITY_CHARS:
        return None
    path, _, name = entry.rpartition(":")
    path, parts = normalise_path(path.rstrip(":"), worktree), name.strip().removesuffix("()").split(".")
    if not path or not all(part.isidentifier() for part in parts):
        return None
    return Entity(path, ".".join(parts), "class" if parts[-1].lstrip("_")[:1].isupper() else "function")


def _is_line(value: Any) -> bool:
    # True is an int in Python, and a file of more than 2**31 lines is a slip of the model that Parquet could not hold.
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31
