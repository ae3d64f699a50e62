"""Issues from installed Python packages: real code that is on every machine.

The query is a docstring; gold are its file and the documented object's lines.

Each package becomes a bare git repository with one commit, whose tree has the chosen docstrings cut out.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from codegrep.errors import DataError, RepositoryError
from codegrep.issues.demo_tree import DemoChoice, PackageTree, build_tree
from codegrep.issues.git import given, holds, init, open_repository
from codegrep.issues.issue import Issue, LineRange
from codegrep.issues.jsonl import issue_from_json
from codegrep.issues.paths import is_test_path, is_vendored_path
from codegrep.issues.source import LoadResult, RepositoryLocation

# Raised whenever the same files would give other trees or queries, so that old repositories are not taken for new ones.
_FORM = 2
_DATE = "2020-01-01T00:00:00+00:00"
_PERSON = b"codegrep demo <demo@invalid> 1577836800 +0000"


class Demo:
    """Source of kind `codegrep.issues.demo.Demo`. Builds each repository once; a later run finds it by its content."""

    def __init__(
        self,
        folder: str,
        packages: Sequence[str],
        per_package: int = 60,
        per_file: int = 2,
        min_words: int = 12,
        max_words: int = 80,
        hide_name: bool = True,
        seed: int = 0,
        max_file_kib: int = 200,
    ) -> None:
        """Create the source.

        Args:
        folder: where the repositories are built.
        packages: import names; a dotted name ("mlflow.store") takes that part of a package only.
        per_package, per_file: most queries of one package and of one file.
        min_words: distinct words (three letters or more) that a query must have.
        max_words: a query ends with the paragraph in which it reaches so many words.
        hide_name: replace the documented object's own name in its query.
        seed: of the choice of docstrings.
        max_file_kib: larger files (generated code) stay out of the tree.
        """
        if isinstance(packages, str) or not packages:
            raise DataError("packages must be a list of import names", "For example packages: [hydra, git]")
        self._folder = Path(folder).expanduser().absolute()
        self._packages = tuple(packages)
        self._choice = DemoChoice(per_package, per_file, min_words, max_words, hide_name, seed)
        self._max_bytes = max_file_kib * 1024

    def load(self) -> LoadResult:
        """Build or find the repository of each package.

        Raises:
            DataError: none of the packages is installed, or none has a usable docstring.
        """
        result = LoadResult()
        for package, names in self._parts().items():
            files = self._files(names, result)
            if not files:
                continue
            issues, location = self._package(package, files)
            if not issues:
                result.skip("package without informative docstrings")
                continue
            result.issues += issues
            result.repositories[f"demo/{package}"] = RepositoryLocation(local=location)
        if not result.issues:
            raise DataError(
                f"none of the demo packages can be used: {', '.join(self._packages)}",
                "Install the project's requirements first",
            )
        return result

    def state(self) -> dict[str, str]:
        """Return a hash over the files of each installed package. What is built from them changes nothing."""
        unused = LoadResult()
        files = {package: self._files(names, unused) for package, names in self._parts().items()}
        return {package: self._fingerprint(found)[:12] if found else "" for package, found in files.items()}

    def _parts(self) -> dict[str, list[str]]:
        """Return what is wanted of each package, by the package's name."""
        parts: dict[str, list[str]] = {}
        for name in self._packages:
            parts.setdefault(name.partition(".")[0], []).append(name)
        return parts

    def _files(self, names: Sequence[str], result: LoadResult) -> dict[str, bytes]:
        """Python files by path from the folder above the package, sorted."""
        files: dict[str, bytes] = {}
        for name in names:
            root = package_folder(name)
            if root is None:
                result.reject(f"package {name}", "not installed here as Python files", under="package not installed")
                continue
            above = root.parents[name.count(".")]
            for path in sorted(root.rglob("*.py")):
                relative = path.relative_to(above).as_posix()
                if is_test_path(relative) or is_vendored_path(relative) or path.stat().st_size > self._max_bytes:
                    continue
                files[relative] = path.read_bytes()
        return dict(sorted(files.items()))

    def _package(self, package: str, files: dict[str, bytes]) -> tuple[list[Issue], Path]:
        fingerprint = self._fingerprint(files)
        location = self._folder / f"demo__{package}-{fingerprint[:12]}.git"
        known = _read_index(location)
        if known is not None:
            return known, location
        tree = build_tree(package, files, self._choice)
        self._folder.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".building-{package}-", dir=self._folder))
        try:
            commit = write_repository(tree, building)
            issues = [
                Issue(
                    instance_id=f"demo__{package}-{hashlib.sha256(f'{query.path}:{query.name}'.encode()).hexdigest()[:10]}",
                    repo=f"demo/{package}",
                    base_commit=commit,
                    problem_statement=query.text,
                    gold_files=(query.path,),
                    gold_ranges=(LineRange(query.path, query.first, query.last),),
                    source="demo",
                    created_at=_DATE,
                )
                for query in tree.queries
            ]
            index = json.dumps({"issues": [asdict(issue) for issue in issues]}, indent=1)
            (building / "issues.json").write_text(index, encoding="utf-8")
            if _read_index(location) is None:  # else another process has just built the same one
                shutil.rmtree(location, ignore_errors=True)
                building.replace(location)
        except OSError:
            if _read_index(location) is None:
                raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return issues, location

    def _fingerprint(self, files: dict[str, bytes]) -> str:
        digest = hashlib.sha256(json.dumps([_FORM, asdict(self._choice), self._max_bytes]).encode())
        for path, content in files.items():
            digest.update(f"{path}\0{len(content)}\0".encode())
            digest.update(content)
        return digest.hexdigest()


def package_folder(name: str) -> Path | None:
    """Folder of an installed package or of a part of it, found without importing anything; None where there is none."""
    top, *rest = name.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        return None
    # PathFinder looks only at sys.path: it neither imports a parent nor asks modules that are already loaded.
    spec = importlib.machinery.PathFinder.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        return None
    for location in spec.submodule_search_locations:
        folder = Path(location).joinpath(*rest)
        if folder.is_dir():
            return folder
    return None


def write_repository(tree: PackageTree, folder: Path) -> str:
    """Write a bare repository with one commit and return the commit's hash, the same for the same files everywhere.

    Raises:
        RepositoryError: git failed.
    """
    init(folder)
    message = f"{tree.package}: installed files without the docstrings that are asked for\n".encode()
    stream = bytearray(
        b"commit refs/heads/main\nauthor %b\ncommitter %b\ndata %d\n%b" % (_PERSON, _PERSON, len(message), message)
    )
    for path, content in tree.files.items():
        quoted = json.dumps(path, ensure_ascii=False).encode()
        stream += b"M 100644 inline %b\ndata %d\n%b\n" % (quoted, len(content), content)
    stream += b"done\n"
    with open_repository(folder) as repo, given(bytes(stream)) as stdin:
        repo.git.fast_import(quiet=True, done=True, istream=stdin)
        return repo.head.commit.hexsha


def _read_index(location: Path) -> list[Issue] | None:
    """Issues of a finished repository; None when there is none, or when it is damaged."""
    try:
        rows: list[dict[str, Any]] = json.loads((location / "issues.json").read_text(encoding="utf-8"))["issues"]
        issues = [issue_from_json(json.dumps(row)) for row in rows]
        with open_repository(location) as repo:
            complete = not issues or holds(repo, issues[0].base_commit)
    except (OSError, ValueError, KeyError, TypeError, RepositoryError):
        return None
    return issues if complete else None
