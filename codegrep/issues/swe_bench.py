"""Issues from a SWE-bench-like data set: SWE-bench, SWE-rebench, Multi-SWE-bench; from a file, a folder or a hub id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from codegrep.errors import DataError
from codegrep.issues.issue import Issue
from codegrep.issues.patch import PatchError, parse_patch
from codegrep.issues.paths import is_gold_path
from codegrep.issues.repositories import checked_folder, find_repository
from codegrep.issues.rows import check_place, read_rows
from codegrep.issues.source import LoadResult, RepositoryLocation, checked_suffixes
from codegrep.issues.statements import names_gold
from codegrep.issues.swe_bench_rows import RowError, read_fields


class SWEBench:
    """Source of kind `codegrep.issues.swe_bench.SWEBench`.

    Gold files are the files of the gold patch that exist at the base commit (modified, deleted or renamed away), are
    source files by `gold_suffixes`, and are no tests unless `gold_tests`. About 36 % of CodeGrep's targets hold tests;
    here they are left out by default, since the place of the fix is what is looked for.
    """

    def __init__(
        self,
        path: str,
        repositories: str | None = None,
        split: str | None = None,
        clone: bool = False,
        gold_tests: bool = False,
        gold_suffixes: Sequence[str] = (".py",),
        drop_statements_that_name_gold: bool = False,
    ) -> None:
        """Create the source.

        Args:
            path: JSONL(.gz), JSON or Parquet file, a folder of them, or a hub id "owner/name".
            repositories: folder with clones or bundles (forms: see `find_repository`); None means none are at hand.
            split: split of the data set; None takes all.
            clone: repositories that are not in the folder are cloned from GitHub later on.
            gold_tests, gold_suffixes: which files of the patch are gold.
            drop_statements_that_name_gold: leave out issues whose text already gives a gold file's name away.

        Raises:
            DataError: `gold_suffixes` is no list of endings, or neither `repositories` nor `clone` is given.
        """
        self._path = path
        self._folder = repositories
        self._split = split
        self._clone = clone
        self._gold_tests = gold_tests
        self._suffixes = checked_suffixes(gold_suffixes, "gold_suffixes")
        self._drop_named = drop_statements_that_name_gold
        if repositories is None and not clone:
            raise DataError(
                "swe_bench needs the issues' repositories", "Set repositories to a folder of clones, or clone to true"
            )

    def check(self) -> None:
        """See `CheckedSource.check`."""
        check_place(self._path)
        if self._folder is not None:
            checked_folder(self._folder, "repositories")

    def load(self) -> LoadResult:
        """Read all rows, then find their repositories.

        Raises:
            DataError: the data set cannot be read, or not one repository can be found.
        """
        folder = checked_folder(self._folder, "repositories") if self._folder is not None else None
        result = LoadResult()
        issues = self._read_issues(result)
        self._locate(issues, folder, result)
        return result

    def _read_issues(self, result: LoadResult) -> dict[str, Issue]:
        issues: dict[str, Issue] = {}
        rows = 0
        for where, row in read_rows(self._path, self._split):
            rows += 1
            if isinstance(row, str):
                result.reject(where, row)
                continue
            try:
                issue = self._issue(row, result)
            except (RowError, PatchError) as error:
                result.reject(where, str(error))
                continue
            if issue is None:
                continue
            if issue.instance_id in issues:
                result.reject(where, f"duplicate instance_id {issue.instance_id}", under="duplicate instance_id")
                continue
            issues[issue.instance_id] = issue
        if rows and not issues:
            first = f"; first problem: {result.broken[0]}" if result.broken else f": {dict(result.skipped)}"
            raise DataError(f"none of the {rows} rows of {self._path} can be used{first}")
        if not rows:
            raise DataError(f"{self._path} holds no rows")
        return issues

    def _issue(self, row: dict[str, object], result: LoadResult) -> Issue | None:
        fields = read_fields(row)
        patch = parse_patch(fields.patch)
        gold = tuple(path for path in patch.old_files if is_gold_path(path, self._suffixes, self._gold_tests))
        if not patch.changes:
            result.skip("no gold patch")
            return None
        if not gold:
            result.skip("no gold file that exists at the base commit")
            return None
        if self._drop_named and names_gold(fields.problem_statement, gold):
            result.skip("statement names a gold file")
            return None
        kept = frozenset(gold)
        return Issue(
            instance_id=fields.instance_id,
            repo=fields.repo,
            base_commit=fields.base_commit,
            problem_statement=fields.problem_statement,
            patch=fields.patch,
            gold_files=gold,
            gold_ranges=tuple(found for found in patch.old_ranges if found.path in kept),
            source="swe_bench",
            created_at=fields.created_at,
        )

    def _locate(self, issues: dict[str, Issue], folder: Path | None, result: LoadResult) -> None:
        counts = Counter(issue.repo for issue in issues.values())
        missing: list[str] = []
        for repo in sorted(counts):
            local = find_repository(folder, repo) if folder is not None else None
            if local is None and not self._clone:
                missing.append(repo)
                continue
            url = f"https://github.com/{repo}.git" if self._clone else None
            result.repositories[repo] = RepositoryLocation(local, url)
        if missing and not result.repositories:
            shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
            raise DataError(
                f"none of the repositories is in {folder}: {shown}",
                "Put bare clones there as owner__name.git, or set clone to true",
            )
        for repo in missing:
            result.reject(repo, f"repository not found in {folder}", counts[repo], under="repository not found")
        result.issues = [issue for issue in issues.values() if issue.repo in result.repositories]
