"""Mined target sets: the gold of training issues, and of held-out issues beside the files of the patch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from codegrep.config import LabelsConfig
from codegrep.errors import DataError
from codegrep.issues import Issue
from codegrep.issues.issue import sample_id
from codegrep.issues.source import RepositoryLocation
from codegrep.pipeline.prepared import Prepared, existing
from codegrep.runtime.artifacts import Artifact
from codegrep.sandbox.repositories import Repositories

TRAINING_TARGETS = "training_targets.json"  # of the stage label: {instance_id: [[target files], …]}
_COLUMNS = ["instance_id", "base_commit", "target_files"]


def held_out_targets(
    path: Path, held_out: Sequence[Issue], locations: Mapping[str, RepositoryLocation], repositories: Repositories
) -> dict[str, tuple[str, ...]]:
    """Return target sets by instance id: the union over an issue's samples, and the files of its patch.

    Mined files that the base commit does not have are left out, as in the targets of training.

    Args:
        path: a samples.parquet of the command `label`.
        held_out: the issues.
        locations: where a repository without a clone comes from.
        repositories: the clones.

    Raises:
        DataError: the file is no such file, or has no sample of a held-out issue.
    """
    mined = read(path, held_out)
    if not mined:
        raise DataError(
            f"{path} has no sample of the {len(held_out)} held-out issues (evaluate.targets)",
            "Mine their trajectories with python -m codegrep label … 'data.split.held_out=[]' "
            "data.split.enforce_roles=false",
        )
    targets: dict[str, tuple[str, ...]] = {}
    for repo in sorted({issue.repo for issue in held_out if issue.instance_id in mined}):
        issues = [issue for issue in held_out if issue.repo == repo and issue.instance_id in mined]
        clone = repositories.ensure(repo, locations.get(repo))
        there = existing(clone, {f"{i.base_commit}:{file}" for i in issues for file in mined[i.instance_id]})
        for issue in issues:
            files = {file for file in mined[issue.instance_id] if f"{issue.base_commit}:{file}" in there}
            targets[issue.instance_id] = tuple(sorted(files.union(issue.gold_files)))
    return targets


def read(path: Path, held_out: Sequence[Issue]) -> dict[str, set[str]]:
    """Read the target files of the held-out issues from a samples.parquet, united over an issue's samples.

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


def targets_file(targets: str) -> Path:
    """Return the file that evaluate.targets names.

    Raises:
        DataError: there is none.
    """
    path = Path(targets).expanduser()
    if not path.is_file():
        raise DataError(f"there is no file {path} (evaluate.targets)", "Name a samples.parquet of the command label")
    return path


@dataclass(frozen=True)
class TrainingSet:
    """The training issues of an experiment, with mined targets as gold where it has labels.

    Attributes:
        prepared: the issues.
        labels: of the configuration.
        mined: artifact of the stage label; None where the experiment has no labels.
    """

    prepared: Prepared
    labels: LabelsConfig
    mined: Artifact | None

    @property
    def fingerprint(self) -> Any:
        """What decides the issues, for the inputs of later stages."""
        if self.mined is None:
            return self.prepared.fingerprint
        return [self.prepared.fingerprint, self.mined.fingerprint, self.labels.keep_unlabelled]

    @cached_property
    def issues(self) -> tuple[Issue, ...]:
        """The issues.

        Raises:
            DataError: there is none.
        """
        issues = self.prepared.train
        if not issues:
            raise DataError(
                "no issue is left for training: all of them are held out (data.split)",
                "Give data.split.held_out fewer of the repositories, split by instance, or add a source",
            )
        if self.mined is None:
            return issues
        issues = labelled(issues, self.mined.folder / TRAINING_TARGETS, keep_unlabelled=self.labels.keep_unlabelled)
        if not issues:
            raise DataError(
                "no training issue has a label", "Set labels.keep_unlabelled=true, or give its trajectories"
            )
        return issues


def labelled(issues: Sequence[Issue], path: Path, *, keep_unlabelled: bool) -> tuple[Issue, ...]:
    """Give training issues target sets as gold, one issue a sample.

    The second and further samples of an issue get `instance_id@n`, since an id is unique within a run. Line ranges stay
    those of the patch: mined files have none.

    Args:
        issues: with the files of their patches as gold.
        path: JSON of {instance_id: [[target files], …]}, existing at the base commit.
        keep_unlabelled: keep issues without target sets as they are.
    """
    targets: dict[str, list[list[str]]] = json.loads(path.read_text(encoding="utf-8"))
    labelled_issues: list[Issue] = []
    for issue in issues:
        samples = targets.get(issue.instance_id, [])
        if not samples and keep_unlabelled:
            labelled_issues.append(issue)
        for number, files in enumerate(samples, start=1):
            labelled_issues.append(
                replace(issue, instance_id=sample_id(issue.instance_id, number), gold_files=tuple(files))
            )
    return tuple(labelled_issues)
