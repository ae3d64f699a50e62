"""Text of problem statements: commit messages made into statements, and what a statement gives away."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

_TRAILER = re.compile(
    r"""\s*+(?: (?:signed-off|co-authored|co-developed|reviewed|acked|tested|reported|suggested|helped|authored
        |committed|approved|submitted|merged|requested)-by\s*: .*
    | (?:change-id|git-svn-id|gitorigin-revid|cc|pr-url|differential\ revision|pull-request|backport-of
        |refs?:?\s*\#?\d+)\s*+:? \s*+ \S*+ \s*$
    | \(cherry[\s-]picked\ from\ commit\ .*
    | \[?(?:skip\ ci|ci\ skip)\]? \s*$
    | --hg--.* | branch\ :\ .* | extra\ :\ .* | rename\ :\ .*
    | \[pre-commit\.ci\].* | for\ more\ information,\ see\ https://pre-commit\.ci.* | updates:\s*$
    | -{5,}\s*$ | \*{5,}\s*$
    | merge\ (?:pull\ request|branch|remote|commit)\b.* )""",
    re.VERBOSE | re.IGNORECASE,
)
# Bullets of a squash merge that say how the work went, not what was wrong.
_CHORE_BULLET = re.compile(
    r"""\s*+[*-]\s++(?: (?:update|add|fix|remove|revert|rename|apply|address|run|merge)\b .{0,30}
        (?:whatsnew|changelog|changes|news|docs?|docstrings?|comments?|tests?|lint\w*|flake8|pep8|black|isort|mypy|typos?
        |formatting|release\ notes?|imports?|review\w*|suggestions?|branch.*
        |\S+\.(?:py|rst|md|txt|ya?ml|toml|cfg)) \s*+\.?
    | (?:lint\w*|typos?|wip|cleanup|clean\ up|format\w*|black|pep8|flake8|mypy|review\w*|tests?|whatsnew|nits?
        |more\ tests?|minor.*|oops.*|merge\b.*|co-authored-by.*) \s*+\.?) \s*$""",
    re.VERBOSE | re.IGNORECASE,
)
_PULL_NUMBER = re.compile(r"(?<!\s)\s*\((?:#\d+|gh-\d+)\)\s*$", re.IGNORECASE)
_BLANK_LINES = re.compile(r"\n{3,}")


def statement_of_message(message: str) -> str:
    """Return a commit message as a problem statement, without trailers, merge boilerplate and "(#123)".

    Lines such as "Fixes #123" stay: they are part of how people write, and give no file away.
    """
    lines = message.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "").strip().split("\n")
    subject = _PULL_NUMBER.sub("", lines[0].strip())
    kept = [] if _TRAILER.fullmatch(subject) else [subject]
    repeated = subject.rstrip(" .").lower()
    for line in lines[1:]:
        # Squash merges often repeat the subject as their first bullet.
        is_repeated = line.lstrip(" *-").rstrip(" .").lower() == repeated
        if not (is_repeated or _TRAILER.fullmatch(line) or _CHORE_BULLET.fullmatch(line)):
            kept.append(line.rstrip())
    return _BLANK_LINES.sub("\n\n", "\n".join(kept)).strip()


def names_gold(statement: str, gold_files: Iterable[str]) -> bool:
    """Return whether the statement has a gold file's path, dotted module name, or file name (`__init__.py` aside)."""
    for path in gold_files:
        pure = PurePosixPath(path)
        names = {path}
        if pure.suffix == ".py" and len(pure.parts) > 1:
            dotted = ".".join(pure.with_suffix("").parts).removesuffix(".__init__")
            names |= {dotted, dotted.removeprefix("src.").removeprefix("lib.")}
        if pure.name != "__init__.py":
            names.add(pure.name)
        names = {name for name in names if "." in name or "/" in name}
        if any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", statement) for name in names):
            return True
    return False


def statement_hash(statement: str) -> str:
    """Hash of a statement without case, punctuation and spacing: equal for re-wrapped copies of one text."""
    words = re.findall(r"\w+", statement.lower())
    return hashlib.sha256(" ".join(words).encode("utf-8", "surrogatepass")).hexdigest()
