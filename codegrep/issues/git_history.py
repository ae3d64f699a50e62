"""Issues from any git history: a commit that fixes something is an issue, its parent is the base commit."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

from codegrep.errors import DataError, RepositoryError
from codegrep.issues.commit_filters import CommitFilter
from codegrep.issues.commit_log import read_commits, read_patches
from codegrep.issues.git import Limits, clone
from codegrep.issues.issue import Issue
from codegrep.issues.patch import PatchError, parse_patch
from codegrep.issues.repositories import is_bundle, list_repositories
from codegrep.issues.source import LoadResult, RepositoryLocation, checked_suffixes
from codegrep.issues.statements import names_gold, statement_hash

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class GitHistory:
    """Source of kind `codegrep.issues.git_history.GitHistory`.

    The commit message is the problem statement. Whoever wrote it knew the fix, so these issues are easier than reported
    ones: better training material than evaluation.
    """

    def __init__(
        self,
        path: str,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        ref: str = "HEAD",
        max_commits: int = 0,
        max_per_repository: int = 0,
        max_files: int = 3,
        max_changed: int = 30,
        min_message_chars: int = 40,
        min_words: int = 5,
        only_fixes: bool = True,
        since: str | None = None,
        until: str | None = None,
        gold_suffixes: Sequence[str] = (".py",),
        gold_tests: bool = False,
        with_patch: bool = False,
        gold_ranges: bool = True,
        drop_statements_that_name_gold: bool = False,
    ) -> None:
        """Create the source.

        Args:
            path: a repository or bundle, or a folder of them (forms: see `list_repositories`).
            include, exclude: labels "owner/name"; an empty `include` takes all.
            ref: where each history starts.
            max_commits: newest commits looked at in each repository; 0 means all.
            max_per_repository: issues kept of each repository, spread evenly over its history; 0 means all.
            max_files, max_changed, min_message_chars, min_words, only_fixes: see `CommitFilter`.
            gold_suffixes, gold_tests: which changed files are gold.
            since, until: ISO dates.
            with_patch: keep each commit's diff in `Issue.patch` (large histories: hundreds of megabytes).
            gold_ranges: fill `Issue.gold_ranges`; reads the diffs (seconds for a thousand issues), keeps none.
            drop_statements_that_name_gold: leave out issues whose text already gives a gold file's name away.

        Raises:
            DataError: an argument has no usable value.
        """
        for key, value in (("since", since), ("until", until)):
            if value is not None and not _is_date(str(value)):
                raise DataError(f"{key} must be a date from 1970 to 2099 such as 2020-01-31, got {value!r}")
        if since is not None and until is not None and str(since) > str(until):
            raise DataError(f"since {since} is after until {until}, so no commit is between them")
        self._path = path
        self._include = frozenset(label.lower() for label in include)
        self._exclude = frozenset(label.lower() for label in exclude)
        self._ref = ref
        self._max_commits = max_commits
        self._max_issues = max_per_repository
        self._since, self._until = since, until
        self._with_patch, self._with_ranges = with_patch, gold_ranges
        self._drop_named = drop_statements_that_name_gold
        self._filter = CommitFilter(
            max_files=max_files,
            max_changed=max_changed,
            min_message_chars=min_message_chars,
            min_words=min_words,
            only_fixes=only_fixes,
            gold_suffixes=checked_suffixes(gold_suffixes, "gold_suffixes"),
            gold_tests=gold_tests,
        )

    def load(self) -> LoadResult:
        """Read the histories, one `git log` each.

        Raises:
            DataError: `path` holds no repository, `include` names none of them, or no commit of any makes an issue.
        """
        result = LoadResult()
        repositories = self._repositories()
        for label, path in repositories.items():
            try:
                with _readable(path) as readable:
                    issues = self._issues(label, readable, result)
            except RepositoryError as error:
                result.reject(label, str(error), under="unreadable repository")
                continue
            if issues:
                result.issues += issues
                result.repositories[label] = RepositoryLocation(local=path)
        if not result.issues:
            why = f"; first problem: {result.broken[0]}" if result.broken else f": {dict(result.skipped)}"
            raise DataError(f"no commit of {len(repositories)} repositories in {self._path} makes an issue{why}")
        return result

    def check(self) -> None:
        """See `CheckedSource.check`."""
        self._repositories()

    def _repositories(self) -> dict[str, Path]:
        folder = Path(self._path).expanduser().absolute()
        if not folder.exists():
            raise DataError(f"git_history path not found: {folder}", "Give a repository or a folder of repositories")
        known = list_repositories(folder) if folder.is_dir() or is_bundle(folder) else {}
        if not known:
            raise DataError(f"no git repository in {folder}", "Put clones there as owner__name or owner__name.git")
        chosen = {
            label: path
            for label, path in known.items()
            if (not self._include or label.lower() in self._include) and label.lower() not in self._exclude
        }
        absent = self._include - {label.lower() for label in known}
        if absent or not chosen:
            named = ", ".join(sorted(absent)) or "all of them are excluded"
            raise DataError(
                f"include and exclude leave no match in {folder}: {named}", f"Known: {', '.join(list(known)[:20])}"
            )
        return chosen

    def _issues(self, label: str, repository: Path, result: LoadResult) -> list[Issue]:
        found: list[Issue] = []
        hashes: dict[str, str] = {}
        seen: set[str] = set()
        for commit in read_commits(repository, self._ref, self._max_commits, self._since, self._until):
            where = f"{label} {commit.hash[:12]} {commit.message.strip().partition(chr(10))[0][:80]}"
            chosen = self._filter.judge(commit)
            if isinstance(chosen, str):
                result.skip(chosen, where)
                continue
            text_hash = statement_hash(chosen.statement)
            if text_hash in seen:  # a backport of the same fix
                result.skip("duplicate message", where)
                continue
            seen.add(text_hash)
            if self._drop_named and names_gold(chosen.statement, chosen.gold_files):
                result.skip("statement names a gold file", where)
                continue
            instance_id = f"{label.replace('/', '__')}-{commit.hash[:12]}"
            hashes[instance_id] = commit.hash
            found.append(
                Issue(
                    instance_id=instance_id,
                    repo=label,
                    base_commit=commit.parents[0],
                    problem_statement=chosen.statement,
                    gold_files=chosen.gold_files,
                    source="git_history",
                    created_at=commit.date,
                )
            )
        kept = _spread(found, self._max_issues)
        if len(kept) < len(found):
            result.skipped["over max_per_repository"] += len(found) - len(kept)
        if self._with_patch or self._with_ranges:
            kept = list(self._with_diffs(kept, [hashes[issue.instance_id] for issue in kept], repository))
        return kept

    def _with_diffs(self, issues: list[Issue], hashes: list[str], repository: Path) -> Iterable[Issue]:
        by_hash = dict(zip(hashes, issues, strict=True))
        for commit, text in read_patches(repository, hashes):
            issue = by_hash.pop(commit)
            if self._with_ranges:
                gold = frozenset(issue.gold_files)
                try:
                    ranges = tuple(found for found in parse_patch(text).old_ranges if found.path in gold)
                except PatchError:  # an odd name elsewhere in the commit costs the ranges, not the issue
                    ranges = ()
                issue = replace(issue, gold_ranges=ranges)
            yield replace(issue, patch=text) if self._with_patch else issue
        yield from by_hash.values()


def _is_date(text: str) -> bool:
    """Whether git reads the date as it stands; others, such as month 13 or 1960, it guesses at without a word."""
    try:
        return _DATE.fullmatch(text) is not None and 1970 <= date.fromisoformat(text).year <= 2099
    except ValueError:
        return False


def _spread(issues: list[Issue], limit: int) -> list[Issue]:
    """At most `limit` issues at even distances, in the given order; 0 means all."""
    if limit <= 0 or len(issues) <= limit:
        return issues
    return [issues[index * len(issues) // limit] for index in range(limit)]


@contextmanager
def _readable(path: Path) -> Iterator[Path]:
    """Return the repository itself; a bundle is unpacked into a temporary bare clone first."""
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="codegrep-bundle-") as folder:
        unpacked = Path(folder) / "clone.git"
        clone(os.fspath(path), unpacked, Limits())
        yield unpacked
