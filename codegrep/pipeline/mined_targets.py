"""Mined target sets: the gold of training issues, and of held-out issues beside the files of the patch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from codegrep.errors import DataError
from codegrep.issues import Issue
from codegrep.issues.issue import sample_id
from codegrep.pipeline.context import Context
from codegrep.pipeline.stages import prepare
from codegrep.runtime.artifacts import file_content
from codegrep.sandbox.repositories import Repositories

TRAINING_TARGETS = "training_targets.json"  # of the stage label: {instance_id: [[target files], …]}
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


def training_issues(context: Context) -> tuple[Issue, ...]:
    """The training issues of the experiment, with mined targets as gold where the experiment has labels.

    Raises:
        CodegrepError: labels are wanted and the stage has not run.
        DataError: there is none.
    """
    issues = prepare.load(context.need("prepare")).train
    if not issues:
        raise DataError(
            "no issue is left for training: all of them are held out (data.split)",
            "Give data.split.held_out fewer of the repositories, split by instance, or add a source",
        )
    if not context.config.labels.enabled:
        return issues
    made = labelled(
        issues, context.need("label").folder / TRAINING_TARGETS, keep_unlabelled=context.config.labels.keep_unlabelled
    )
    if not made:
        raise DataError("no training issue has a label", "Set labels.keep_unlabelled=true, or give its trajectories")
    return made


def training_fingerprint(context: Context) -> Any:
    """What decides `training_issues`, for the inputs of later stages."""
    issues = context.need("prepare").fingerprint
    if not context.config.labels.enabled:
        return issues
    return [issues, context.need("label").fingerprint, context.config.labels.keep_unlabelled]


def labelled(issues: Sequence[Issue], path: Path, *, keep_unlabelled: bool) -> tuple[Issue, ...]:
    """Training issues with target sets as gold, one issue a sample.

    The second and further samples of an issue get `instance_id@n`, since an id is unique within a run. Line ranges stay
    those of the patch: mined files have none (SPEC 1.4, merge mode).

    Args:
        path: JSON of {instance_id: [[target files], …]}, existing at the base commit.
    """
    targets: dict[str, list[list[str]]] = json.loads(path.read_text(encoding="utf-8"))
    made: list[Issue] = []
    for issue in issues:
        found = targets.get(issue.instance_id, [])
        if not found and keep_unlabelled:
            made.append(issue)
        for number, files in enumerate(found, start=1):
            made.append(replace(issue, instance_id=sample_id(issue.instance_id, number), gold_files=tuple(files)))
    return tuple(made)
