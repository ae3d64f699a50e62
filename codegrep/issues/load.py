"""Builds the sources that conf/data names and merges what they give."""

from __future__ import annotations

import inspect
import pkgutil
import types
import typing
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from codegrep.config import DataConfig, SourceConfig, SplitConfig
from codegrep.errors import CodegrepError, ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.issues.roles import kept_out
from codegrep.issues.source import IssueSource, LoadResult
from codegrep.issues.splits import draw, names_roles, roles_by_name, side_of


@dataclass
class LoadedIssues(LoadResult):
    """The issues of all sources together.

    Attributes:
        counts: issues kept, by source name of conf/data.
        skipped_by_source: reasons, by source name; `skipped` is their sum.
        train_only: instance ids of the sources with use=train.
        removed_by_role: issues of those sources that their repository's role has kept out, by repository.
    """

    counts: dict[str, int] = field(default_factory=dict)
    skipped_by_source: dict[str, Counter[str]] = field(default_factory=dict)
    train_only: frozenset[str] = frozenset()
    removed_by_role: Counter[str] = field(default_factory=Counter)


def load_issues(config: DataConfig) -> LoadedIssues:
    """Loads every source of `config`, in the order of their names' appearance.

    A source with use=train loses its issues of repositories that are held out or, in a split by roles, have no side
    in it, before `limit` is applied. Issues that choose checkpoints do not count for `limit`.

    Raises:
        ConfigError: a source's kind, arguments, use or limit is wrong.
        DataError: a source as a whole cannot be used, or no source is given.
    """
    if not config.sources:
        raise ConfigError("data.sources is empty", "Name at least one source")
    sources = {name: build_source(name, source) for name, source in config.sources.items()}
    merged = LoadedIssues()
    seen: dict[str, str] = {}
    train_only: set[str] = set()
    for name, source in sources.items():
        settings = config.sources[name]
        try:
            loaded = source.load()
        except DataError as error:
            raise DataError(f"data.sources.{name}: {error.what}", error.fix) from error
        issues, beside = loaded.issues, list[Issue]()
        if settings.use == "train":
            issues, beside = _material(loaded, config.split, merged.removed_by_role)
        kept = draw(issues, settings.limit, config.split.seed)
        loaded.skipped["over limit"] += len(issues) - len(kept)
        count = 0
        for issue in (*kept, *beside):
            if issue.instance_id in seen:
                loaded.skip(f"instance_id already in source {seen[issue.instance_id]}", issue.instance_id)
                continue
            seen[issue.instance_id] = name
            merged.issues.append(issue)
            count += 1
            if settings.use == "train":
                train_only.add(issue.instance_id)
        _merge(merged, name, loaded, count)
    used = {issue.repo for issue in merged.issues}
    merged.repositories = {repo: place for repo, place in merged.repositories.items() if repo in used}
    merged.train_only = frozenset(train_only)
    if not merged.issues:
        raise DataError("no source gives any issue")
    return merged


def _material(loaded: LoadResult, split: SplitConfig, removed: Counter[str]) -> tuple[list[Issue], list[Issue]]:
    """The issues of a use=train source to train on, and those that choose checkpoints; the others are counted."""
    repos = {issue.repo for issue in loaded.issues}
    roles = roles_by_name(repos)
    sides = {repo: side_of(repo, roles.get(repo), split) for repo in repos}
    train: list[Issue] = []
    validation: list[Issue] = []
    for issue in loaded.issues:
        side = sides[issue.repo]
        if side == "held_out":
            loaded.skip("repository is held out", issue.instance_id)
        elif side == "validation":
            validation.append(issue)
        elif side is None and names_roles(split):
            loaded.skip(kept_out(roles[issue.repo].name), issue.instance_id)
            removed[issue.repo] += 1
        else:  # where the split does not speak of roles, `make_split` refuses what has no side
            train.append(issue)
    return train, validation


def _merge(merged: LoadedIssues, name: str, loaded: LoadResult, count: int) -> None:
    loaded.skipped = Counter({reason: number for reason, number in loaded.skipped.items() if number})
    merged.counts[name] = count
    merged.skipped_by_source[name] = loaded.skipped
    merged.skipped += loaded.skipped
    merged.broken += loaded.broken
    merged.left_out += loaded.left_out
    for repo, place in loaded.repositories.items():
        known = merged.repositories.get(repo)
        if known is None or (known.local is None and place.local is not None):
            merged.repositories[repo] = place


def build_source(name: str, config: SourceConfig) -> IssueSource:
    """One source from its configuration.

    Raises:
        ConfigError: one line that names the key under data.sources.
    """
    key = f"data.sources.{name}"
    try:
        kind = pkgutil.resolve_name(config.kind)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{key}.kind {config.kind!r} cannot be found: {error}", "Give a dotted name package.module.Class"
        ) from error
    if not inspect.isclass(kind) or not callable(getattr(kind, "load", None)):
        raise ConfigError(f"{key}.kind {config.kind!r} is no issue source", "It must be a class with a method load()")
    _check_arguments(key, kind, config.args)
    try:
        return cast(IssueSource, kind(**config.args))
    except CodegrepError as error:
        raise ConfigError(f"{key}.args: {error.what}", error.fix) from error


def _check_arguments(key: str, kind: type, arguments: dict[str, Any]) -> None:
    signature = inspect.signature(kind)
    known = list(signature.parameters)
    free = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    for name, value in arguments.items():
        if name not in signature.parameters and not free:
            raise ConfigError(f"{key}.args.{name} is not known to {kind.__name__}", f"Known: {', '.join(known)}")
        if value == "???":
            raise ConfigError(f"{key}.args.{name} is not set", f"Set {key}.args.{name}=...")
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{key}.args: {error}", f"Known: {', '.join(known)}") from error
    hints = typing.get_type_hints(vars(kind).get("__init__", kind))
    for name, value in arguments.items():
        if name in hints and not _fits(value, hints[name]):
            raise ConfigError(f"{key}.args.{name} is {value!r}", f"Expected {_shown(hints[name])}")


def _fits(value: object, hint: Any) -> bool:
    """A shallow check of plain YAML values against the annotations that sources use; unknown annotations accept all."""
    origin = typing.get_origin(hint)
    if origin in {types.UnionType, typing.Union}:
        return any(_fits(value, part) for part in typing.get_args(hint))
    if hint is type(None):
        return value is None
    if origin in {list, tuple, Sequence, Collection}:
        items = typing.get_args(hint)[:1]
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and all(_fits(one, part) for part in items for one in value)
        )
    if hint in {int, float}:
        allowed = (int, float) if hint is float else int
        return isinstance(value, allowed) and not isinstance(value, bool)
    if hint in {str, bool}:
        return isinstance(value, hint)
    return True


def _shown(hint: Any) -> str:
    return (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint).replace("collections.abc.", "")
    )
