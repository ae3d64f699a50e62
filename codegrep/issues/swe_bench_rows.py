"""One row of a data set -> the fields of an issue. Forms: SWE-bench, SWE-rebench, Multi-SWE-bench."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Any

from codegrep.issues.repositories import is_repo_label
from codegrep.issues.rows import Row

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# An instance id becomes part of file names further on.
_INSTANCE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@:,-]{0,199}")


class RowError(ValueError):
    """A row that cannot become an issue; the message says why."""


@dataclass(frozen=True)
class SWEFields:
    """The fields that every form has, checked."""

    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str
    patch: str
    created_at: str


def read_fields(row: Row) -> SWEFields:
    """Fields of one row.

    Raises:
        RowError: a field is missing, has the wrong type, or a value that must not reach paths and URLs.
    """
    fields = _multi_swe_fields(row) if "org" in row and "fix_patch" in row else _swe_fields(row)
    if not _INSTANCE_ID.fullmatch(fields.instance_id) or ".." in fields.instance_id:
        raise RowError(f"instance_id {fields.instance_id[:80]!r} is no plain identifier")
    if not is_repo_label(fields.repo):
        raise RowError(f"repo {fields.repo[:80]!r} is not of the form owner/name")
    if not _HASH.fullmatch(fields.base_commit):
        raise RowError(f"base_commit {fields.base_commit[:80]!r} is no full commit hash")
    if not fields.problem_statement.strip():
        raise RowError(f"problem_statement of {fields.instance_id} is empty")
    return fields


def _text(row: Row, key: str) -> str:
    value = row.get(key)
    if value is None:
        raise RowError(f"field {key} is missing")
    if not isinstance(value, str):
        raise RowError(f"field {key} must be text, got {type(value).__name__}")
    # JSON may hold half a surrogate pair; no file could be written with it later.
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _date(value: Any) -> str:
    if isinstance(value, date):  # Parquet gives datetimes, which are dates
        return value.isoformat()
    return value if isinstance(value, str) else ""


def _swe_fields(row: Row) -> SWEFields:
    return SWEFields(
        instance_id=_text(row, "instance_id").strip(),
        repo=_text(row, "repo").strip(),
        base_commit=_text(row, "base_commit").strip().lower(),
        problem_statement=_text(row, "problem_statement"),
        patch=_text(row, "patch"),
        created_at=_date(row.get("created_at")),
    )


def _multi_swe_fields(row: Row) -> SWEFields:
    owner, name = _text(row, "org").strip(), _text(row, "repo").strip()
    base = row.get("base")
    if not isinstance(base, dict):
        raise RowError("field base must be an object with a field sha")
    number = row.get("number")
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise RowError("field number is missing")
    given_id = row.get("instance_id")
    return SWEFields(
        instance_id=given_id.strip() if isinstance(given_id, str) and given_id.strip() else f"{owner}__{name}-{number}",
        repo=f"{owner}/{name}",
        base_commit=_text(base, "sha").strip().lower(),
        problem_statement=_multi_swe_statement(row),
        patch=_text(row, "fix_patch"),
        created_at=_date(row.get("created_at")),
    )


def _multi_swe_statement(row: Row) -> str:
    """Texts of the resolved issues; the pull request's own text, which tells the fix, only where none is recorded."""
    resolved = row.get("resolved_issues")
    records = resolved if isinstance(resolved, list) else []
    texts = [text for record in records if isinstance(record, dict) and (text := _title_and_body(record))]
    return "\n\n".join(texts) if texts else _title_and_body(row)


def _title_and_body(record: Row) -> str:
    parts = [_text(record, key).strip() for key in ("title", "body") if isinstance(record.get(key), str)]
    return "\n\n".join(part for part in parts if part)
