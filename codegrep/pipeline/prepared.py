"""What the stage prepare leaves for the others: issues by side, and their repositories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from codegrep.issues import Issue
from codegrep.issues.git import holds, open_repository
from codegrep.issues.jsonl import read_issues
from codegrep.issues.source import RepositoryLocation
from codegrep.issues.splits import Split
from codegrep.runtime.artifacts import Artifact
from codegrep.sandbox.repositories import BareClone

ISSUES, SPLIT, PLACES = "issues.jsonl", "split.json", "repositories.json"


@dataclass(frozen=True)
class Prepared:
    """Issues by side.

    Attributes:
        train: issues to train on.
        held_out: issues to measure on.
        fingerprint: of the artifact.
        validation: issues that choose checkpoints.
        roles: role by repository, of those that conf/roles.yaml has one for.
        locations: where the clones came from, for a node that lacks one.
    """

    train: tuple[Issue, ...]
    held_out: tuple[Issue, ...]
    fingerprint: str
    validation: tuple[Issue, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    locations: Mapping[str, RepositoryLocation] = field(default_factory=dict)


def load(artifact: Artifact) -> Prepared:
    """Read what the stage prepare left."""
    split = Split.from_json((artifact.folder / SPLIT).read_text(encoding="utf-8"))
    by_id = {issue.instance_id: issue for issue in read_issues(artifact.folder / ISSUES)}
    train, held_out, validation = (
        tuple(by_id[i] for i in side) for side in (split.train, split.held_out, split.validation)
    )
    roles = split.record.get("roles", {})
    return Prepared(train, held_out, artifact.fingerprint, validation, roles, locations(artifact))


def locations(artifact: Artifact) -> dict[str, RepositoryLocation]:
    """Read where the clones came from."""
    return {
        repo: RepositoryLocation(Path(place["local"]) if place["local"] else None, place["url"])
        for repo, place in artifact.read_json(PLACES).items()
    }


def existing(clone: BareClone, names: Collection[str]) -> set[str]:
    """Return those of some object names ("commit", "commit:path") that the clone holds."""
    with open_repository(clone.path) as opened:
        return {name for name in names if holds(opened, name)}
