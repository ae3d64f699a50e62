"""From the path that an agent read to a repo-relative path, or to the reason why it is no target."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from codegrep.issues.paths import is_safe_path, is_test_path

#: Workspace prefixes: OpenHands' `/workspace/owner__name__version/`, SWE-bench's containers, SWE-agent.
WORKSPACES = (r"/workspace/[^/]+/", r"/testbed/", r"/repo/", r"/home/\w+/(?>\w+?__\w[^/]*)/")
#: A longer text is no path.
MAX_PATH_CHARS = 1000
#: Prose. The paper names README.md and issue.md as examples.
DOCUMENTS = (".md", ".markdown", ".rst", ".txt", ".adoc", ".pdf", ".log")


@dataclass(frozen=True)
class PathRules:
    """Which read files can be targets.

    Attributes:
        workspaces: regular expressions of the folder that holds the repository, from the root, with the final slash.
        documents: endings of files that are prose.
        suffixes: endings that a target must have; () takes all.
        tests: whether test files can be targets.
    """

    workspaces: Sequence[str] = WORKSPACES
    documents: Sequence[str] = DOCUMENTS
    suffixes: Sequence[str] = ()
    tests: bool = True

    def reader(self) -> PathReader:
        """Return the rules, compiled."""
        return PathReader(self)


class PathReader:
    """Applies PathRules; each distinct path is looked at once."""

    def __init__(self, rules: PathRules) -> None:
        """Compile the rules.

        Raises:
            ValueError: a workspace is no regular expression.
        """
        self._rules = rules
        try:
            self._workspace = (
                re.compile("|".join(f"(?:{one})" for one in rules.workspaces)) if rules.workspaces else None
            )
        except re.error as error:
            raise ValueError(f"workspaces: {error}") from None
        self._documents = tuple(one.lower() for one in rules.documents)
        self._suffixes = tuple(one.lower() for one in rules.suffixes)
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, path: str) -> tuple[str, str]:
        """(repo-relative path, "") for a possible target, ("", reason) for any other path."""
        found = self._known.get(path)
        if found is None:
            if len(self._known) > 200_000:  # a long run meets ever new paths
                self._known.clear()
            found = self._known[path] = self._read(path)
        return found

    def _read(self, path: str) -> tuple[str, str]:
        text = path.strip()
        if not text:
            return "", "no path"
        if text.endswith("/"):
            return "", "directory"
        if len(text) > MAX_PATH_CHARS:
            return "", "unsafe path"
        # One slash at the front: normpath would keep two.
        whole = posixpath.normpath(("/" + text.lstrip("/")) if text.startswith("/") else text)
        if whole.startswith("/"):
            match = self._workspace.match(whole) if self._workspace else None
            if match is None:
                # The workspace itself, or the folder above it: what agents look at first.
                return "", "directory" if self._above(whole) else "outside the repository"
            whole = whole[match.end() :]
        if whole in ("", "."):
            return "", "directory"
        if whole.startswith("../") or whole == "..":
            return "", "outside the repository"
        if not is_safe_path(whole) or not whole.isprintable():
            return "", "unsafe path"
        name = whole.rpartition("/")[2].lower()
        if "." not in name.lstrip(".") or name.endswith("."):
            return "", "no extension"
        if name.endswith(self._documents):
            return "", "document"
        if self._suffixes and not name.endswith(self._suffixes):
            return "", "other suffix"
        if not self._rules.tests and is_test_path(whole):
            return "", "test"
        return whole, ""

    def _above(self, folder: str) -> bool:
        if self._workspace is None or "." in posixpath.basename(folder):
            return False
        return any(self._workspace.match(folder + below) for below in ("/", "/x/"))
