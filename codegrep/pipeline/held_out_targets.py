"""Mined target sets of held-out issues, which results are given against beside the files of the patch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from codegrep.errors import DataError
from codegrep.issues import Issue
from codegrep.labels.importing import file_content
from codegrep.pipeline.context import Context
from codegrep.pipeline.stages import prepare
from codegrep.sandbox.repositories import Repositories

_COLUMNS = ["instance_id", "base_commit", "target_files"]


def identity(context: Context) -> str:
    """What decides the target sets: the file's content."""
    return file_content(_path(context))


def load(context: Context, held_out: Sequence[Issue]) -> dict[str, tuple[str, ...]]:
    """Target sets by instance id: the union over an issue's samples, and the files of its patch.

    Mined files that the base commit does not have are left out, as in the targets of training.

    Raises:
        DataError: the file is none of the command `label`, or has no sample of a held-out issue.
    """
    path = _path(context)
    mined = read(path, held_out)
    if not mined:
        raise DataError(
            f"{path} has no sample of the {len(held_out)} held-out issues (evaluate.targets)",
            "Mine their trajectories with python -m codegrep label … 'data.split.held_out=[]' "
            "data.split.enforce_roles=false",
        )
    prepared = context.need("prepare")
    places = prepare.locations(prepared)
    repositories = Repositories(context.places.sandbox / "bare", clone_timeout=context.config.sandbox.clone_timeout)
    targets: dict[str, tuple[str, ...]] = {}
    for repo in sorted({issue.repo for issue in held_out if issue.instance_id in mined}):
        issues = [issue for issue in held_out if issue.repo == repo and issue.instance_id in mined]
        clone = repositories.ensure(repo, places.get(repo))
        there = prepare.existing(clone, {f"{i.base_commit}:{file}" for i in issues for file in mined[i.instance_id]})
        for issue in issues:
            found = {file for file in mined[issue.instance_id] if f"{issue.base_commit}:{file}" in there}
            targets[issue.instance_id] = tuple(sorted(found.union(issue.gold_files)))
    return targets


def read(path: Path, held_out: Sequence[Issue]) -> dict[str, set[str]]:
    """Target files of the held-out issues in a samples.parquet, united over an issue's samples.

    Raises:
        DataError: it is no such file.
    """
    commits = {issue.instance_id: issue.base_commit for issue in held_out}
    try:
        rows = parquet.read_table(path, columns=_COLUMNS).to_pylist()
    except (OSError, pa.ArrowException):
        raise DataError(f"{path} is no samples.parquet of the command label (evaluate.targets)", "") from None
    mined: dict[str, set[str]] = {}
    for row in rows:
        if row["base_commit"] and commits.get(row["instance_id"]) == row["base_commit"]:
            mined.setdefault(row["instance_id"], set()).update(row["target_files"] or ())
    return mined


def _path(context: Context) -> Path:
    path = Path(context.config.evaluate.targets or "").expanduser()
    if not path.is_file():
        raise DataError(f"there is no file {path} (evaluate.targets)", "Name a samples.parquet of the command label")
    return path
