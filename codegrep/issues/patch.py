"""A tolerant reader of unified diffs: which files a patch changes, and which lines of their old versions.

It reads git's extended form (renames, quoted names, binary files, mode changes) and the plain `---`/`+++` form, and it
takes patches whose hunk counts are wrong or whose end is missing. Content is never searched for headers: inside a hunk
lines are counted, so a removed line `-- x` is not mistaken for a file header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from codegrep.issues.issue import LineRange
from codegrep.issues.patch_names import Names, header_names, strip_prefixes, unquote
from codegrep.issues.paths import is_safe_path


class PatchError(ValueError):
    """The text is no unified diff, or it names a path outside the repository."""


@dataclass(frozen=True)
class Hunk:
    """One hunk, reduced to the old lines that it touches.

    Attributes:
        start, end: first and last old line, 1-based and inclusive, without leading and trailing context. A hunk that
            only inserts has start == end: the line that the insertion follows (1 at the top of a file).
    """

    start: int
    end: int


@dataclass(frozen=True)
class FileChange:
    """One file of a patch.

    Attributes:
        old: path before the patch; None for an added file.
        new: path after it; None for a deleted file.
        copied: `old` was copied, not changed.
        binary: the content is not shown as text.
        hunks: in the order of the patch.
    """

    old: str | None
    new: str | None
    copied: bool = False
    binary: bool = False
    hunks: tuple[Hunk, ...] = ()


@dataclass(frozen=True)
class Patch:
    """All file changes of one unified diff, in its order."""

    changes: tuple[FileChange, ...]

    @property
    def old_files(self) -> tuple[str, ...]:
        """Paths that existed before and were modified, deleted or renamed away, sorted."""
        added = set(self.added_files)
        return tuple(sorted({c.old for c in self.changes if c.old is not None and not c.copied} - added))

    @property
    def added_files(self) -> tuple[str, ...]:
        """Paths that the patch creates without an old version, sorted."""
        return tuple(sorted({c.new for c in self.changes if c.new is not None and c.old is None}))

    @property
    def old_ranges(self) -> tuple[LineRange, ...]:
        """Touched old lines of `old_files`, one range a hunk without context, sorted (CodeGrep, App. B)."""
        known = set(self.old_files)
        found = {
            LineRange(change.old, hunk.start, hunk.end)
            for change in self.changes
            if change.old in known and change.old is not None and not change.copied
            for hunk in change.hunks
        }
        return tuple(sorted(found))


_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_EXTENDED = re.compile(
    r"(?:old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to|similarity index"
    r"|dissimilarity index|index|Binary files|GIT binary patch|literal|delta)\b"
)


def parse_patch(text: str) -> Patch:
    """Read a unified diff.

    Args:
        text: the diff; blank text is an empty patch. Prose around the diff (a mail, a commit message) is skipped.

    Raises:
        PatchError: the text is not blank but holds no file change, or a path is absolute or leaves the repository.
    """
    reader = _Reader(text)
    changes = tuple(reader.changes())
    if not changes and text.strip():
        raise PatchError("no file change found: not a unified diff")
    for change in changes:
        for path in (change.old, change.new):
            if path is not None and not is_safe_path(path):
                raise PatchError(f"unsafe path {path[:100]!r}")
    return Patch(changes)


class _Reader:
    """A cursor over the lines; each method consumes what it understands."""

    def __init__(self, text: str) -> None:
        # Only "\n" ends a line of a diff: str.splitlines would also cut at form feeds and the like inside the content.
        self._lines = text.split("\n")
        self._at = 0

    def changes(self) -> Iterator[FileChange]:
        while self._at < len(self._lines):
            line = self._header_line()
            if line.startswith("diff --git "):
                self._at += 1
                change = self._git_change(header_names(line[len("diff --git ") :]))
            elif line.startswith(("diff --cc ", "diff --combined ")):
                self._at += 1
                name = unquote(line.split(" ", 2)[2])
                change = FileChange(name, name) if name else None  # a merge: no single old side, so no ranges
            elif self._at_plain_header():
                change = self._plain_change()
            else:
                self._at += 1
                continue
            if change is not None:
                yield change

    def _header_line(self, offset: int = 0) -> str:
        index = self._at + offset
        return self._lines[index].rstrip("\r") if index < len(self._lines) else ""

    def _at_next_file(self) -> bool:
        """Whether the header of one file with its hunk stands here, so that a hunk's counts are too large.

        Lines of content, removed and added, would have to begin with `-- ` and `++ ` and one name.
        """
        if not self._at_plain_header() or _HUNK.match(self._header_line(2)) is None:
            return False
        names = strip_prefixes(unquote(self._header_line()[4:]), unquote(self._header_line(1)[4:]))
        return names.old == names.new or None in names

    def _at_plain_header(self) -> bool:
        return self._header_line().startswith("--- ") and self._header_line(1).startswith("+++ ")

    def _plain_change(self) -> FileChange | None:
        old = unquote(self._header_line()[4:])
        new = unquote(self._header_line(1)[4:])
        self._at += 2
        names = strip_prefixes(old, new)
        hunks = tuple(self._hunks())
        return None if names == Names(None, None) else FileChange(names.old, names.new, hunks=hunks)

    def _git_change(self, names: Names) -> FileChange | None:
        added = deleted = copied = binary = False
        moved_from: str | None = None
        moved_to: str | None = None
        shown: FileChange | None = None
        while self._at < len(self._lines):
            line = self._header_line()
            if self._at_plain_header():
                shown = self._plain_change()
                break
            if not _EXTENDED.match(line):
                break
            added |= line.startswith("new file mode")
            deleted |= line.startswith("deleted file mode")
            copied |= line.startswith("copy from")
            if line.startswith(("rename from ", "copy from ")):
                moved_from = unquote(line.split(" from ", 1)[1])
            elif line.startswith(("rename to ", "copy to ")):
                moved_to = unquote(line.split(" to ", 1)[1])
            self._at += 1
            if line.startswith(("Binary files", "GIT binary patch")):
                binary = True
                break  # base-85 lines that follow start no file and are skipped by changes()
        old, new = names.old, names.new
        if shown is not None:
            old, new = shown.old, shown.new
            # The header names win over a /dev/null side: their prefixes are certain, those of a single side are not.
            if old is None and names.new is not None:
                new = names.new
            if new is None and names.old is not None:
                old = names.old
        if moved_from is not None and moved_to is not None:
            old, new = moved_from, moved_to
        old = None if added else old
        new = None if deleted and not added else new
        if old is None and new is None:
            return None
        return FileChange(old, new, copied, binary, shown.hunks if shown else ())

    def _hunks(self) -> Iterator[Hunk]:
        while self._at < len(self._lines):
            match = _HUNK.match(self._lines[self._at])
            if match is None:
                return
            self._at += 1
            start = int(match[1])
            old_left = int(match[2]) if match[2] is not None else 1
            new_left = int(match[4]) if match[4] is not None else 1
            # With an old count of 0, `start` is the line before the hunk, not its first line.
            hunk = self._hunk_body(start if old_left else start + 1, old_left, new_left)
            if hunk is not None:
                yield hunk

    def _hunk_body(self, line_number: int, old_left: int, new_left: int) -> Hunk | None:
        """Walk the body; `line_number` is the next old line, first and end bound the changed part (half-open)."""
        first: int | None = None
        end = line_number
        while (old_left > 0 or new_left > 0) and self._at < len(self._lines):
            line = self._lines[self._at]
            kind = line[:1].rstrip("\r")
            last_line = self._at == len(self._lines) - 1
            if kind not in {"", " ", "+", "-", "\\"} or (kind == "" and last_line) or self._at_next_file():
                break  # a shorter hunk than announced
            self._at += 1
            if kind == "\\":
                continue
            if kind in {"+", "-"} and first is None:
                first = line_number
            if kind != "+":
                old_left -= 1
                line_number += 1
            if kind != "-":
                new_left -= 1
            if kind in {"+", "-"}:
                end = line_number
        while self._at < len(self._lines) and self._lines[self._at].startswith("\\"):
            self._at += 1
        if first is None:
            return None
        if end > first:
            return Hunk(max(first, 1), max(end - 1, 1))
        anchor = max(first - 1, 1)
        return Hunk(anchor, anchor)
