"""Divides issues into training and held-out ones, once, from a seed; and proves that nothing of one is in the other."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from codegrep.config import SplitConfig
from codegrep.errors import ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.issues.statements import statement_hash


@dataclass(frozen=True)
class Split:
    """A division of issues.

    Attributes:
        train, held_out: instance ids, sorted.
        record: how it was made: by, seed, repositories of each side, what was removed and why. JSON types only.
    """

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Hash of the two sides and of how they were cut (not of the record): equal splits have equal fingerprints."""
        sides = json.dumps([sorted(self.train), sorted(self.held_out), self.record.get("by", "")])
        return hashlib.sha256(sides.encode()).hexdigest()

    def to_json(self) -> str:
        """The split as a JSON text with its fingerprint."""
        content = {
            "train": self.train,
            "held_out": self.held_out,
            "record": self.record,
            "fingerprint": self.fingerprint,
        }
        return json.dumps(content, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Split:
        """Reads what `to_json` wrote.

        Raises:
            DataError: it is no split, or was changed since it was written.
        """
        try:
            content = json.loads(text)
            split = cls(tuple(content["train"]), tuple(content["held_out"]), dict(content["record"]))
            written = content["fingerprint"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"the recorded split cannot be read: {error}", "Delete it to have it made again") from error
        if split.fingerprint != written:
            raise DataError("the recorded split was changed by hand", "Delete it to have it made again")
        return split


def make_split(issues: Sequence[Issue], config: SplitConfig, train_only: Collection[str] = ()) -> Split:
    """Splits by repository or by instance; the order of `issues` does not matter.

    By instance, issues that share a statement or a gold patch stay on one side. Repository labels are compared without
    case, as GitHub does.

    Args:
        issues: all issues, unique by instance_id.
        config: conf/data, `split`.
        train_only: instance ids that may only be trained on. Those of held-out repositories are removed and counted.

    Raises:
        ConfigError: `config` contradicts itself.
        DataError: there is nothing to hold out, or a held-out repository's name looks misspelt.
    """
    if config.by not in {"repository", "instance"}:
        raise ConfigError(f"data.split.by is {config.by!r}", "Use 'repository' or 'instance'")
    if not 0.0 < config.held_out_share < 1.0 and not config.held_out:
        raise ConfigError(f"data.split.held_out_share is {config.held_out_share}", "It must lie between 0 and 1")
    material = frozenset(train_only)
    open_issues = sorted((issue for issue in issues if issue.instance_id not in material), key=_instance_id)
    if not open_issues:
        raise DataError("no issue can be held out: all sources are use=train", "Give one source use: split")
    if config.by == "repository":
        held_units, record = _held_repositories(open_issues, config)
        unit_of: Callable[[Issue], str] = _repository
    else:
        held_units, record, unit_of = _held_instances(open_issues, config)
    held = [issue for issue in open_issues if unit_of(issue) in held_units]
    train = [issue for issue in open_issues if unit_of(issue) not in held_units]
    removed: Counter[str] = Counter()
    for issue in issues:
        if issue.instance_id not in material:
            continue
        if config.by == "repository" and _repository(issue) in held_units:
            removed[issue.repo] += 1
        else:
            train.append(issue)
    cut_train = draw(train, config.max_train, config.seed)
    cut_held = draw(held, config.max_held_out, config.seed)
    record |= {
        "by": config.by,
        "seed": config.seed,
        "train_repositories": dict(sorted(Counter(issue.repo for issue in cut_train).items())),
        "held_out_repositories": dict(sorted(Counter(issue.repo for issue in cut_held).items())),
        "removed_training_material": dict(sorted(removed.items())),
        "cut": {"train": len(train) - len(cut_train), "held_out": len(held) - len(cut_held)},
    }
    return Split(tuple(sorted(map(_instance_id, cut_train))), tuple(sorted(map(_instance_id, cut_held))), record)


def _held_repositories(issues: Sequence[Issue], config: SplitConfig) -> tuple[set[str], dict[str, Any]]:
    labels = {_repository(issue): issue.repo for issue in issues}
    if config.held_out:
        named = {name.lower(): name for name in config.held_out}
        held = set(named) & set(labels)
        absent = [named[name] for name in sorted(set(named) - set(labels))]
        for name in absent:
            # A misspelt name would quietly send its repository to the training side.
            close = get_close_matches(name.lower(), sorted(set(labels) - held), n=1, cutoff=0.85)
            if close:
                raise DataError(
                    f"data.split.held_out names {name}, which has no issues", f"Is {labels[close[0]]} meant?"
                )
        if not held:
            shown = ", ".join(sorted(labels.values())[:20])
            raise DataError(
                f"no issue belongs to the held-out repositories {', '.join(sorted(config.held_out))}",
                f"Set data.split.held_out to [] for a drawn share, or to some of {shown}",
            )
        return held, {"held_out_by": "name", "held_out_absent": absent}
    if len(labels) < 2:
        raise DataError(
            f"only one repository has issues ({next(iter(labels.values()))})", "Set data.split.by to instance"
        )
    return _drawn(labels, config), {"held_out_by": "share", "held_out_share": config.held_out_share}


def _held_instances(
    issues: Sequence[Issue], config: SplitConfig
) -> tuple[set[str], dict[str, Any], Callable[[Issue], str]]:
    if config.held_out:
        raise ConfigError(
            "data.split.held_out names repositories, but data.split.by is instance", "Leave held_out empty"
        )
    group = _groups_of_equals(issues)
    units = set(group.values())
    if len(units) < 2:
        raise DataError(f"{len(issues)} issue(s) cannot be split by instance", "Give more issues")
    record = {"held_out_by": "share", "held_out_share": config.held_out_share}
    return _drawn(units, config), record, lambda issue: group[issue.instance_id]


def _drawn(units: Iterable[str], config: SplitConfig) -> set[str]:
    """A share of the units by rank of their seeded hash: at least one held out, at least one left."""
    ranked = sorted(units, key=lambda unit: (_rank(config.seed, unit), unit))
    count = min(max(1, round(config.held_out_share * len(ranked))), len(ranked) - 1)
    return set(ranked[:count])


def _groups_of_equals(issues: Sequence[Issue]) -> dict[str, str]:
    """instance_id -> a name of its group; issues with an equal statement or patch are in one group (transitively)."""
    parent = {issue.instance_id: issue.instance_id for issue in issues}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    first: dict[str, str] = {}
    for issue in issues:
        for key in (f"statement {statement_hash(issue.problem_statement)}", _patch_key(issue)):
            if key is not None:
                one, other = sorted((root(first.setdefault(key, issue.instance_id)), root(issue.instance_id)))
                parent[other] = one
    return {name: root(name) for name in parent}


def check_leaks(split: Split, issues: Iterable[Issue]) -> None:
    """Compares both sides by everything that could carry an answer over.

    That is: ids, statements, gold patches and, when split by repository, repositories and base commits (forks and
    renamed repositories share commits).

    Raises:
        DataError: something is on both sides; the line names what and where.
    """
    by_id = {issue.instance_id: issue for issue in issues}
    unknown = [name for name in (*split.train, *split.held_out) if name not in by_id]
    if unknown:
        raise DataError(
            f"the split names {len(unknown)} issues that are not loaded, such as {unknown[0]}", "Make the split again"
        )
    both = set(split.train) & set(split.held_out)
    if both:
        raise DataError(f"leak between splits: {len(both)} instance ids are in both, such as {min(both)}")
    keys: list[tuple[str, Callable[[Issue], str | None]]] = [
        ("problem statement", lambda issue: statement_hash(issue.problem_statement)),
        ("gold patch", _patch_key),
    ]
    if split.record.get("by", "repository") == "repository":
        keys = [("repository", _repository), ("base commit", lambda issue: issue.base_commit), *keys]
    for what, key in keys:
        trained: dict[str, str] = {}
        for name in split.train:
            value = key(by_id[name])
            if value is not None:
                trained.setdefault(value, name)
        for name in split.held_out:
            value = key(by_id[name])
            if value is not None and value in trained:
                raise DataError(
                    f"leak between splits: {name} (held out) and {trained[value]} (training) have the same {what}",
                    "Hold both repositories out, or leave one source out",
                )


def _instance_id(issue: Issue) -> str:
    return issue.instance_id


def _repository(issue: Issue) -> str:
    return issue.repo.lower()


def _patch_key(issue: Issue) -> str | None:
    """Hash of what the patch adds and removes, without headers and line numbers; None without a patch."""
    changed = [
        line.strip() for line in issue.patch.split("\n") if line[:1] in {"+", "-"} and line[:3] not in {"+++", "---"}
    ]
    changed = [line for line in changed if len(line) > 1]
    return hashlib.sha256("\n".join(changed).encode("utf-8", "surrogatepass")).hexdigest() if changed else None


def _rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).digest()


def draw(issues: Iterable[Issue], count: int, seed: int) -> list[Issue]:
    """`count` issues drawn from the seed (0: all), in the order given. Independent of that order."""
    listed = list(issues)
    if count <= 0 or len(listed) <= count:
        return listed
    kept = {issue.instance_id for issue in sorted(listed, key=lambda one: _rank(seed, one.instance_id))[:count]}
    return [issue for issue in listed if issue.instance_id in kept]
