"""What kind of file a repo-relative path names: test, programming-language source, vendored, documentation."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePosixPath

#: File name endings of programming languages (the ones that SWE-bench-like data sets contain).
SOURCE_SUFFIXES = (
    ".py", ".pyi", ".pyx", ".pxd", ".ipynb",
    ".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".cu", ".cuh", ".m", ".mm",
    ".java", ".kt", ".kts", ".scala", ".groovy", ".clj",
    ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".vue", ".svelte",
    ".go", ".rs", ".rb", ".php", ".cs", ".fs", ".swift", ".dart", ".zig",
    ".lua", ".pl", ".pm", ".r", ".jl", ".hs", ".ml", ".mli", ".ex", ".exs", ".erl", ".f90", ".sh", ".sql",
)  # fmt: skip

_TEST_FOLDERS = frozenset(
    {"test", "tests", "__tests__", "e2e", "testdata", "test_data", "unittests", "unit_tests", "testsuite"}
)
# At the root of a repository these hold tests; deeper down `testing` usually is a library's public helper module.
_TEST_ROOTS = frozenset({"testing", "spec", "specs"})
_TEST_NAME = re.compile(
    r"""test_.*\.\w+ | tests?\.py | conftest\.py | .*_tests?\.\w+ | .*\.(test|spec)\.[cm]?[jt]sx? | .*_spec\.rb
    | \w*[a-z0-9]Tests?\.(java|kt|scala|groovy|cs)""",
    re.VERBOSE,
)
_VENDORED_FOLDERS = frozenset(
    {"vendor", "_vendor", "vendored", "_vendored", "third_party", "third-party", "thirdparty", "3rdparty",
     "extern", "externals", "node_modules", "site-packages", "_vendored_packages"}
)  # fmt: skip
_DOC_FOLDERS = frozenset({"doc", "docs", "documentation", "examples", "example", "changelog", "changes", "news"})
_DOC_SUFFIXES = (".md", ".rst", ".txt", ".adoc", ".html", ".css", ".po", ".pot", ".png", ".svg", ".jpg", ".gif")
_VERSION_FILES = frozenset(
    {"version.py", "_version.py", "__version__.py", "release.py", "__about__.py", "__pkginfo__.py", "versioneer.py"}
)


def is_test_path(path: str) -> bool:
    """Return whether this is a file of a test suite: in a tests folder, or `test_*.py`, `*_test.py`, `conftest.py`."""
    parts = PurePosixPath(path).parts
    if not parts:
        return False
    folders = [part.lower() for part in parts[:-1]]
    if any(folder in _TEST_FOLDERS for folder in folders) or (folders and folders[0] in _TEST_ROOTS):
        return True
    return _TEST_NAME.fullmatch(parts[-1]) is not None


def is_source_path(path: str, suffixes: Collection[str] = SOURCE_SUFFIXES) -> bool:
    """Return whether the file name ends in one of `suffixes` (any case) and is more than the suffix."""
    name = PurePosixPath(path).name.lower()
    return any(name.endswith(suffix.lower()) and len(name) > len(suffix) for suffix in suffixes)


def is_vendored_path(path: str) -> bool:
    """Return whether this is a copy of another project kept inside a repository (`vendor/`, `third_party/`, …)."""
    return any(part.lower() in _VENDORED_FOLDERS for part in PurePosixPath(path).parts[:-1])


def is_doc_path(path: str) -> bool:
    """Return whether this is documentation: prose or a picture by suffix, or below a docs or examples folder."""
    parts = PurePosixPath(path).parts
    if any(part.lower() in _DOC_FOLDERS for part in parts[:-1]):
        return True
    name = parts[-1].lower() if parts else ""
    return name.endswith(_DOC_SUFFIXES) or name.split(".")[0] in {"changes", "changelog", "news", "authors", "readme"}


def is_version_path(path: str) -> bool:
    """Return whether this file only says which version the project has."""
    return PurePosixPath(path).name.lower() in _VERSION_FILES


def is_safe_path(path: str) -> bool:
    """Return whether this is a relative POSIX path below its root, without control bytes that git cannot store."""
    if not path or path.startswith("/") or "\0" in path or "\\" in path:
        return False
    return all(part not in {"", ".", ".."} for part in path.split("/"))


def is_gold_path(path: str, suffixes: Collection[str], tests: bool) -> bool:
    """Return the rule for gold files of a patch: source by suffix and, unless `tests`, not a test file."""
    return is_safe_path(path) and is_source_path(path, suffixes) and (tests or not is_test_path(path))
