"""Roles of repositories (conf/roles.yaml): which are trained on, which choose checkpoints, which are only measured."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from codegrep.conf_folder import CONF
from codegrep.errors import ConfigError
from codegrep.issues.repositories import is_repo_label

FILE = "conf/roles.yaml"
TRAIN, VALIDATION = "train", "validation"
#: Never trained on, and nothing is chosen by them.
EVALUATION = ("held_out_2", "held_out_1", "reserved")
#: From the least to the most strict.
ROLES = (TRAIN, VALIDATION, *EVALUATION)
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Role:
    """The role of one repository. origin: whose it is in conf/roles.yaml, another repository's for a fork."""

    name: str
    origin: str


@dataclass(frozen=True)
class Roles:
    """What conf/roles.yaml says. repositories: role and first commits by owner/name."""

    repositories: Mapping[str, tuple[str, tuple[str, ...]]]

    def of(self, repo: str, roots: Iterable[str] = ()) -> Role | None:
        """Return a repository's role by its name and first commits, the strictest of several; None for none."""
        found = [self._by_name.get(repo.lower()), *(self._by_root.get(root) for root in sorted(roots))]
        return max((role for role in found if role), key=_strictness, default=None)

    def named(self, roles: Collection[str]) -> frozenset[str]:
        """Names, in lower case, of the repositories with one of these roles."""
        return frozenset(name.lower() for name, (role, _) in self.repositories.items() if role in roles)

    @property
    def digest(self) -> str:
        """Hash of everything that the file says."""
        return hashlib.sha256(json.dumps(self.repositories, sort_keys=True).encode()).hexdigest()

    @cached_property
    def _by_name(self) -> dict[str, Role]:
        return {name.lower(): Role(role, name) for name, (role, _) in self.repositories.items()}

    @cached_property
    def _by_root(self) -> dict[str, Role]:
        by_root: dict[str, Role] = {}
        for name, (role, roots) in self.repositories.items():
            for root in roots:
                by_root[root] = max(by_root.get(root, Role(role, name)), Role(role, name), key=_strictness)
        return by_root


def kept_out(role: str) -> str:
    """Why an issue is left out of a split that gives its repository's role no side."""
    return f"repository is {role} ({FILE})"


def _strictness(role: Role) -> int:
    return ROLES.index(role.name)


@cache
def known_roles() -> Roles:
    """Return the roles of conf/roles.yaml."""
    return read_roles(CONF / "roles.yaml")


def read_roles(path: Path) -> Roles:
    """Return the roles of one file: role -> owner/name -> first commits.

    Raises:
        ConfigError: the file cannot be read, names an unknown role, or an entry is not of this form.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"the roles of repositories cannot be read from {path}: {error}") from error
    repositories: dict[str, tuple[str, tuple[str, ...]]] = {}
    seen: set[str] = set()
    for role, entries in _mapping(path, "the file", content).items():
        if role not in ROLES:
            raise ConfigError(f"{path} names the role {role!r}", f"Roles: {', '.join(ROLES)}")
        for name, roots in _mapping(path, role, entries).items():
            good = isinstance(roots, list) and all(isinstance(r, str) and _COMMIT.fullmatch(r) for r in roots)
            if not good or not isinstance(name, str) or not is_repo_label(name):
                raise ConfigError(f"{path}: {role}.{name} is no owner/name with a list of full commit hashes")
            if name.lower() in seen:
                raise ConfigError(f"{path} names {name} twice", "Give it one role")
            seen.add(name.lower())
            repositories[name] = (role, tuple(roots))
    return Roles(repositories)


def _mapping(path: Path, where: str, value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {where} is no mapping", "Write role: {owner/name: [first commits]}")
    return value
