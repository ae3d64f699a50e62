"""Divides issues into training and held-out ones, once, from a seed; and proves that nothing of one is in the other."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from codegrep.config import SplitConfig
from codegrep.errors import ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.issues.roles import EVALUATION, FILE, ROLES, TRAIN, VALIDATION, Role, known_roles
from codegrep.issues.statements import statement_hash


@dataclass(frozen=True)
class Split:
    """A division of issues.

    Attributes:
        train, held_out: instance ids, sorted.
        record: how it was made: by, seed, repositories of each side, roles, what was removed and why. JSON types only.
        validation: ids of the issues that choose checkpoints.
    """

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    record: dict[str, Any] = field(default_factory=dict)
    validation: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Hash of the sides and of how they were cut (not of the record): equal splits have equal fingerprints."""
        sides = [sorted(self.train), sorted(self.held_out), self.record.get("by", "")]
        if self.validation:
            sides.append(sorted(self.validation))
        return hashlib.sha256(json.dumps(sides).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the split as a JSON text with its fingerprint."""
        content = {
            "train": self.train,
            "held_out": self.held_out,
            "validation": self.validation,
            "record": self.record,
            "fingerprint": self.fingerprint,
        }
        return json.dumps(content, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Split:
        """Read what `to_json` wrote.

        Raises:
            DataError: it is no split, or was changed since it was written.
        """
        try:
            content = json.loads(text)
            sides = (tuple(content[side]) for side in ("train", "held_out", "validation"))
            train, held_out, validation = sides
            split = cls(train, held_out, dict(content["record"]), validation)
            written = content["fingerprint"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"the recorded split cannot be read: {error}", "Delete it to have it made again") from error
        if split.fingerprint != written:
            raise DataError("the recorded split was changed by hand", "Delete it to have it made again")
        return split


def check_split(config: SplitConfig) -> None:
    """Refuse a split that contradicts itself or conf/roles.yaml.

    Raises:
        ConfigError: one line with the key and the fix.
    """
    if config.by == "instance" and (config.held_out or config.validation):
        raise ConfigError(
            "data.split.held_out or validation names repositories, but data.split.by is instance", "Leave both empty"
        )
    for key, names in (("held_out", config.held_out), ("validation", config.validation)):
        for name in names:
            if "/" not in name and name not in ROLES:
                raise ConfigError(f"data.split.{key} holds {name!r}", f"Name owner/name, or a role: {', '.join(ROLES)}")
    if both := {name.lower() for name in config.held_out} & {name.lower() for name in config.validation}:
        raise ConfigError(f"data.split.held_out and validation both name {min(both)}", "Leave it in one of them")
    if config.enforce_roles:
        for name in config.validation:
            role = known_roles().of(name)
            if name in EVALUATION or (role is not None and role.name in EVALUATION):
                what = name if role is None else f"{name}, which is {role.name} in {FILE}"
                raise ConfigError(
                    f"data.split.validation names {what}: nothing is chosen by it",
                    f"Use {VALIDATION}, or repositories of your own",
                )


def side_of(repo: str, role: Role | None, config: SplitConfig) -> str | None:
    """Return the side of a repository's issues: "train", "validation" or "held_out"; None for none.

    A fork goes with its origin, also where the configuration names only that one. With a drawn share "train" means
    that the repository can be drawn.
    """
    names = {repo.lower()} | ({role.origin.lower(), role.name} if role is not None else set())
    kept_for = role.name if role is not None and config.enforce_roles else TRAIN
    if names & {name.lower() for name in config.held_out}:
        return "held_out"
    if names & {name.lower() for name in config.validation}:
        return VALIDATION if kept_for not in EVALUATION else None
    return TRAIN if kept_for == TRAIN else None


def names_roles(config: SplitConfig) -> bool:
    """Whether the split speaks of roles: repositories that it gives no side are left out of it then, else refused."""
    return any("/" not in name for name in (*config.held_out, *config.validation))


def make_split(
    issues: Sequence[Issue],
    config: SplitConfig,
    train_only: Collection[str] = (),
    roles: Mapping[str, Role] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> Split:
    """Split by repository or by instance; the order of `issues` does not matter.

    By instance, issues that share a statement or a gold patch stay on one side. Repository labels are compared without
    case, as GitHub does. What a repository's role keeps out of the split is left out and counted in the record.

    Args:
        issues: all issues, unique by instance_id.
        config: conf/data, `split`.
        train_only: instance ids that may only be trained on or choose checkpoints. Those of held-out repositories are
            removed and counted.
        roles: by label, of the repositories that have one; None looks them up by name.
        left_out: issues by label that their role has kept out before, for the record.

    Raises:
        ConfigError: `config` contradicts itself.
        DataError: there is nothing to hold out, a held-out repository's name looks misspelt, or a repository with a
            role would be trained on.
    """
    check_split(config)
    if roles is None:
        roles = roles_by_name({issue.repo for issue in issues})
    sides = {issue.repo: side_of(issue.repo, roles.get(issue.repo), config) for issue in issues}
    material = frozenset(train_only)
    open_issues = sorted((issue for issue in issues if issue.instance_id not in material), key=_instance_id)
    if not open_issues:
        raise DataError("no issue can be held out: all sources are use=train", "Give one source use: split")
    absent = {
        "held_out_absent": _absent({issue.repo for issue in open_issues}, "held_out", config.held_out),
        "validation_absent": _absent(sides, "validation", config.validation),
    }
    if not names_roles(config):
        _refuse_kept(sides, roles)
    if config.by == "repository":
        held_units, record = _held_repositories(open_issues, sides, config)
        unit_of: Callable[[Issue], str] = _repository
    else:
        held_units, record, unit_of = _held_instances(open_issues, config)
    train: list[Issue] = []
    validation: list[Issue] = []
    held: list[Issue] = []
    removed: Counter[str] = Counter()
    kept_out = Counter(left_out or {})
    for issue in (*open_issues, *(issue for issue in issues if issue.instance_id in material)):
        is_material = issue.instance_id in material
        if sides[issue.repo] is None:
            kept_out[issue.repo] += 1
        elif sides[issue.repo] == VALIDATION:
            validation.append(issue)
        elif is_material and config.by == "repository" and _repository(issue) in held_units:
            removed[issue.repo] += 1
        elif not is_material and unit_of(issue) in held_units:
            held.append(issue)
        else:
            train.append(issue)
    validation, shared = _without_texts_of(held, validation)
    train, more = _without_texts_of([*held, *validation], train)
    cut_train = draw(train, config.max_train, config.seed)
    cut_held = draw(held, config.max_held_out, config.seed)
    record |= {
        **absent,
        "by": config.by,
        "seed": config.seed,
        "train_repositories": _by_repository(cut_train),
        "validation_repositories": _by_repository(validation),
        "held_out_repositories": _by_repository(cut_held),
        "removed_training_material": dict(sorted(removed.items())),
        "removed_shared_messages": shared + more,
        "removed_by_role": _by_role(kept_out, roles),
        "roles": {repo: role.name for repo, role in sorted(roles.items())},
        "forks": {repo: role.origin for repo, role in sorted(roles.items()) if repo.lower() != role.origin.lower()},
        "cut": {"train": len(train) - len(cut_train), "held_out": len(held) - len(cut_held)},
    }
    return Split(_ids(cut_train), _ids(cut_held), record, _ids(validation))


def _without_texts_of(kept: Iterable[Issue], issues: Sequence[Issue]) -> tuple[list[Issue], int]:
    """Issues without the fix commits whose message is a kept issue's too, and how many those are.

    Bots and contributors on a tour send one message to many projects; it tells nothing about any of them. Equal base
    commits are another matter: a fork, which `check_leaks` stops.
    """
    commits = {statement_hash(issue.problem_statement): issue.base_commit for issue in kept}
    left = [
        issue
        for issue in issues
        if issue.source != "git_history"
        or commits.get(statement_hash(issue.problem_statement), issue.base_commit) == issue.base_commit
    ]
    return left, len(issues) - len(left)


def roles_by_name(repos: Iterable[str]) -> dict[str, Role]:
    """Roles of those labels that conf/roles.yaml names."""
    return {repo: role for repo in repos if (role := known_roles().of(repo)) is not None}


def _refuse_kept(sides: Mapping[str, str | None], roles: Mapping[str, Role]) -> None:
    """Refuse a split that names no roles: its author does not expect issues to be left out."""
    for repo in sorted(repo for repo, side in sides.items() if side is None):
        role = roles[repo]
        fork = "" if repo.lower() == role.origin.lower() else f"shares its first commits with {role.origin}, which "
        measured = role.name in EVALUATION
        raise DataError(
            f"{repo} {fork}is {role.name} in {FILE}: nothing is trained on it{' or chosen by it' * measured}",
            f"Leave it out, set data.split.{'held_out' if measured else 'validation'}=[{role.name}], or "
            "data.split.enforce_roles=false for work that stands beside no result of this project",
        )


def _by_role(counts: Mapping[str, int], roles: Mapping[str, Role]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for repo, count in sorted(counts.items()):
        role = roles[repo] if repo in roles else known_roles().of(repo)
        assert role is not None  # a repository is only kept out for its role
        found.setdefault(role.name, {})[repo] = count
    return found


def _by_repository(issues: Iterable[Issue]) -> dict[str, int]:
    return dict(sorted(Counter(issue.repo for issue in issues).items()))


def _ids(issues: Iterable[Issue]) -> tuple[str, ...]:
    return tuple(sorted(map(_instance_id, issues)))


def _absent(repos: Iterable[str], key: str, names: Sequence[str]) -> list[str]:
    """Repositories that are named and have no issues; a misspelt name would quietly send one to training."""
    labels = {repo.lower(): repo for repo in repos}
    named = {name.lower(): name for name in names if "/" in name}
    absent = [named[name] for name in sorted(set(named) - set(labels))]
    for name in absent:
        close = get_close_matches(name.lower(), sorted(set(labels) - set(named)), n=1, cutoff=0.85)
        if close:
            raise DataError(f"data.split.{key} names {name}, which has no issues", f"Is {labels[close[0]]} meant?")
    return absent


def _held_repositories(
    issues: Sequence[Issue], sides: Mapping[str, str | None], config: SplitConfig
) -> tuple[set[str], dict[str, Any]]:
    labels = {_repository(issue): issue.repo for issue in issues}
    if config.held_out:
        held = {name for name, repo in labels.items() if sides[repo] == "held_out"}
        if not held:
            shown = ", ".join(sorted(labels.values())[:20])
            raise DataError(
                f"no issue belongs to the held-out repositories {', '.join(sorted(config.held_out))}",
                f"Set data.split.held_out to [] for a drawn share, or to some of {shown}",
            )
        return held, {"held_out_by": "name"}
    drawable = {name for name, repo in labels.items() if sides[repo] == TRAIN}
    if len(drawable) < 2:
        raise DataError(
            f"a drawn share needs two repositories, and there is {' or '.join(sorted(drawable)) or 'none'}",
            "Set data.split.by to instance, or name what is held out in data.split.held_out",
        )
    return _drawn(drawable, config), {"held_out_by": "share", "held_out_share": config.held_out_share}


def _held_instances(
    issues: Sequence[Issue], config: SplitConfig
) -> tuple[set[str], dict[str, Any], Callable[[Issue], str]]:
    group = _groups_of_equals(issues)
    units = set(group.values())
    if len(units) < 2:
        raise DataError(f"{len(issues)} issue(s) cannot be split by instance", "Give more issues")
    record = {"held_out_by": "share", "held_out_share": config.held_out_share}
    return _drawn(units, config), record, lambda issue: group[issue.instance_id]


def _drawn(units: Iterable[str], config: SplitConfig) -> set[str]:
    """Return a share of the units by rank of their seeded hash: at least one held out, at least one left."""
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
    """Compare the sides by everything that could carry an answer over.

    That is: ids, statements, gold patches and, when split by repository, repositories and base commits (forks and
    renamed repositories share commits).

    Raises:
        DataError: something is on two sides; the line names what and where.
    """
    by_id = {issue.instance_id: issue for issue in issues}
    sides = (("training", split.train), ("validation", split.validation), ("held out", split.held_out))
    unknown = [name for _, names in sides for name in names if name not in by_id]
    if unknown:
        raise DataError(
            f"the split names {len(unknown)} issues that are not loaded, such as {unknown[0]}", "Make the split again"
        )
    keys: list[tuple[str, Callable[[Issue], str | None]]] = [
        ("problem statement", lambda issue: statement_hash(issue.problem_statement)),
        ("gold patch", _patch_key),
    ]
    if split.record.get("by", "repository") == "repository":
        keys = [("repository", _repository), ("base commit", lambda issue: issue.base_commit), *keys]
    keys.insert(0, ("instance id", _instance_id))
    for what, key in keys:
        first: dict[str, tuple[str, str]] = {}
        for side, names in sides:
            for name in names:
                value = key(by_id[name])
                if value is None:
                    continue
                earlier_side, earlier = first.setdefault(value, (side, name))
                if earlier_side != side:
                    raise DataError(
                        f"leak between splits: {name} ({side}) and {earlier} ({earlier_side}) have the same {what}",
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
