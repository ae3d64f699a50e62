"""Builds the sources that conf/data names and merges what they give."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import cast

from codegrep.config import DataConfig, SourceConfig, SplitConfig
from codegrep.errors import CodegrepError, ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.issues.roles import kept_out
from codegrep.issues.source import CheckedSource, IssueSource, LoadResult
from codegrep.issues.splits import draw, names_roles, roles_by_name, side_of
from codegrep.named import check_arguments, named_class


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


def check_sources(config: DataConfig) -> None:
    """Refuse sources whose files, folders or repositories are not there, before anything heavy is imported.

    Raises:
        ConfigError, DataError: one line that names the source.
    """
    for name, settings in config.sources.items():
        source = build_source(name, settings)
        if isinstance(source, CheckedSource):
            try:
                source.check()
            except DataError as error:
                raise DataError(f"data.sources.{name}: {error.what}", error.fix) from error


def load_issues(config: DataConfig) -> LoadedIssues:
    """Load every source of `config`, in the order of their names' appearance.

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
    """Return a use=train source's issues to train on and to choose checkpoints; count the others."""
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
    kind = named_class(config.kind, f"{key}.kind", "load", "issue source")
    check_arguments(kind, config.args, f"{key}.args")
    try:
        return cast(IssueSource, kind(**config.args))
    except CodegrepError as error:
        raise ConfigError(f"{key}.args: {error.what}", error.fix) from error
