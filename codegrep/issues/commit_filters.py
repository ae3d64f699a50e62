"""Which commits make good issues: a described fix of one to a few source files. Everything else has a named reason."""

from __future__ import annotations

from dataclasses import dataclass

from codegrep.issues.commit_log import Commit
from codegrep.issues.commit_words import is_chore, is_merge_message, is_revert, telling_words, tells_of_a_fix
from codegrep.issues.paths import is_doc_path, is_gold_path, is_test_path, is_vendored_path, is_version_path
from codegrep.issues.statements import statement_of_message

# They change along with a fix, but hold nothing that an issue asks for.
_BUILD_FILES = frozenset({"setup.py", "noxfile.py", "tasks.py", "fuzz.py"})


@dataclass(frozen=True)
class Chosen:
    """A commit that becomes an issue: its statement and gold files."""

    statement: str
    gold_files: tuple[str, ...]


@dataclass(frozen=True)
class CommitFilter:
    """Thresholds of the choice.

    Attributes:
        max_files: most gold files; more than about three rarely is one bug.
        max_changed: most files of any kind.
        min_message_chars, min_words: of the statement; words are counted without issue numbers, links and "fixes".
        only_fixes: keep only messages that talk of something wrong.
        gold_suffixes, gold_tests: which changed files are gold.
    """

    max_files: int = 3
    max_changed: int = 30
    min_message_chars: int = 40
    min_words: int = 5
    only_fixes: bool = True
    gold_suffixes: tuple[str, ...] = (".py",)
    gold_tests: bool = False

    def judge(self, commit: Commit) -> Chosen | str:
        """Return the statement and gold files of a commit that is kept, else the reason why it is not."""
        if len(commit.parents) > 1:
            return "merge"
        if not commit.parents:
            return "no parent"
        if is_revert(commit.message):
            return "revert"
        if is_merge_message(commit.message):
            return "merge"
        gold = self._gold(commit)
        if isinstance(gold, str):
            return gold
        if is_chore(commit.message):
            return "chore (style, documentation, tests, release, vague)"
        statement = statement_of_message(commit.message)
        if len(statement) < self.min_message_chars or telling_words(statement) < self.min_words:
            return "trivial message"
        if self.only_fixes and not tells_of_a_fix(statement):
            return "message tells of no fix"
        return Chosen(statement, gold)

    def _gold(self, commit: Commit) -> tuple[str, ...] | str:
        entries = commit.entries
        if not entries:
            return "no changed file"
        if len(entries) > self.max_changed:
            return "bulk change"
        created = {entry.new for entry in entries if entry.status == "A"}
        code = [entry for entry in entries if not is_doc_path(entry.path)]
        if not code:
            return "only documentation"
        source = [entry for entry in code if self.gold_tests or not is_test_path(entry.path)]
        if not source:
            return "only tests"
        own = [entry for entry in source if not is_vendored_path(entry.path)]
        if not own:
            return "only vendored files"
        candidates = [
            entry
            for entry in own
            if is_gold_path(entry.path, self.gold_suffixes, self.gold_tests) and not is_version_path(entry.path)
        ]
        candidates = [entry for entry in candidates if entry.path not in _BUILD_FILES]
        if not candidates:
            return "no source file by suffix"
        # A file that only moved (its blob was created elsewhere) was not what was wrong.
        gold = [
            entry.path
            for entry in candidates
            if (entry.status == "M" or (entry.status == "D" and entry.old not in created))
            and "\ufffd" not in entry.path
        ]
        if not gold:
            return "no gold file that exists in the parent"
        if len(gold) > self.max_files:
            return "too many gold files"
        return tuple(sorted(gold))
