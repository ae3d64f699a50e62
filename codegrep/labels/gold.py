"""Gold patches and base commits, joined to trajectories by instance id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from codegrep.issues import Issue
from codegrep.issues.patch import PatchError, parse_patch
from codegrep.issues.paths import is_gold_path
from codegrep.issues.rows import read_rows
from codegrep.issues.swe_bench_rows import RowError, read_fields


@dataclass(frozen=True)
class Gold:
    """What is known of an issue. files: of the gold patch, existing at the base commit, sorted."""

    repo: str
    base_commit: str
    files: tuple[str, ...]


@dataclass
class GoldPatches:
    """Gold by instance id, and what was left out."""

    by_instance: dict[str, Gold] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)


def from_file(paths: Iterable[str], *, suffixes: Sequence[str], tests: bool) -> GoldPatches:
    """Gold from SWE-bench, SWE-rebench or Multi-SWE-bench rows (JSONL, JSON, Parquet, a folder, a hub id).

    Args:
        suffixes, tests: which files of a patch are gold; () takes every suffix.

    Raises:
        DataError: a file as a whole cannot be read.
    """
    found = GoldPatches()
    for path in paths:
        for _, row in read_rows(path, None):
            if isinstance(row, str):
                found.skipped["broken row"] += 1
                continue
            try:
                fields = read_fields(row)
                patch = parse_patch(fields.patch)
            except (RowError, PatchError) as error:
                found.skipped["not usable: " + str(error).split("'")[0].strip()[:60]] += 1
                continue
            files = tuple(p for p in patch.old_files if not suffixes or is_gold_path(p, suffixes, tests=True))
            if not tests:
                files = tuple(p for p in files if is_gold_path(p, suffixes or (p[p.rfind(".") :],), tests=False))
            if not files:
                found.skipped["no gold file that exists at the base commit"] += 1
            elif fields.instance_id in found.by_instance:
                found.skipped["duplicate instance_id"] += 1
            else:
                found.by_instance[fields.instance_id] = Gold(fields.repo, fields.base_commit, files)
    return found


def from_issues(issues: Iterable[Issue]) -> GoldPatches:
    """Gold of issues that an experiment has already prepared."""
    return GoldPatches({i.instance_id: Gold(i.repo, i.base_commit, i.gold_files) for i in issues})
