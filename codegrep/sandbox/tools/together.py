"""Searches for plain texts that are asked for at the same time, on the same files, as one process.

A turn asks several things at once, and the rollouts of a prompt ask about one tree. ripgrep needs hardly longer for ten
texts than for one: it reads the files once. Each line that it prints is then given to those whose text it holds. While
one process runs, the next questions gather.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import accumulate

from codegrep.sandbox.tools.matches import DEFINES, NAMES_IT, OTHER, FileHits, LineReader, definitions

_log = logging.getLogger(__name__)
# Questions that one process answers; the index knows as many alternatives.
_MOST = 32
# What `k` and `s` also match when case is ignored: KELVIN SIGN and LATIN SMALL LETTER LONG S.
_FOLDS_TO_ASCII = re.compile(rb"\xe2\x84\xaa|\xc5\xbf")


@dataclass(frozen=True)
class Question:
    """What one search is about.

    Attributes:
        pattern: nothing but texts, as literals.whole_literals reads it.
        texts: those texts in UTF-8; a line has to hold one.
        words: see matches.name_words.
    """

    pattern: str
    texts: tuple[bytes, ...]
    ignore_case: bool
    words: frozenset[bytes]

    @property
    def can_be_shared(self) -> bool:
        """A text that begins like a line's number might be found in the number."""
        return not any(text[:1].isdigit() or text.startswith(b":") for text in self.texts)

    @property
    def may_fold(self) -> bool:
        """Whether a letter outside ASCII can stand for one of the texts'."""
        return self.ignore_case and any(letter in text.lower() for text in self.texts for letter in (b"k", b"s"))


#: Whether a file, by its path, is no part of any answer.
LeaveOut = Callable[[bytes], bool]
#: Runs one process for several questions; gives back what it printed and which files of that are left out, or None when
#: that is no answer.
Run = Callable[[Sequence[Question]], Awaitable[tuple[LineReader, LeaveOut] | None]]
Answer = list[FileHits] | None


def any_of(questions: Sequence[Question]) -> str:
    """A pattern for the lines of all questions, each with its own case; to be searched for with case."""
    folded = dict.fromkeys(question.pattern for question in questions if question.ignore_case)
    exact = dict.fromkeys(question.pattern for question in questions if not question.ignore_case)
    return "|".join([*([f"(?i:{'|'.join(folded)})"] if folded else []), *exact])


@dataclass
class _Waiting:
    question: Question
    answer: asyncio.Future[Answer]


@dataclass
class _Group:
    next: list[_Waiting] = field(default_factory=list)
    running: list[_Waiting] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class Together:
    """Gathers questions.

    Args:
        keep: lines kept of all files of a question, the first ones.
        width: bytes from which on ripgrep, asked alone, shortens a line.
        threads: where lines are given to their questions.
    """

    def __init__(self, keep: int, width: int, threads: Executor) -> None:
        self._keep, self._width, self._threads = keep, width, threads
        self._groups: dict[Hashable, _Group] = {}

    async def ask(self, files: Hashable, question: Question, run: Run) -> Answer:
        """All matching files in the order of their paths; None when the question has to be asked alone.

        Cancelling ends the process when nobody else waits for it.

        Args:
            files: equal for questions about the same files.
        """
        if not question.can_be_shared:
            return None
        loop = asyncio.get_running_loop()
        key = (id(loop), files)
        waiting = _Waiting(question, loop.create_future())
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
            group.task = loop.create_task(self._serve(key, group, run))
        group.next.append(waiting)
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if group.task is not None and all(one.answer.done() for one in [*group.running, *group.next]):
                if self._groups.get(key) is group:
                    del self._groups[key]  # from here on nobody may join it any more
                group.task.cancel()
                await asyncio.wait([group.task])
            raise

    async def _serve(self, key: Hashable, group: _Group, run: Run) -> None:
        try:
            await asyncio.sleep(0)  # the calls of a turn are made in one go
            while group.next:
                group.running, group.next = group.next[:_MOST], group.next[_MOST:]
                group.running = [one for one in group.running if not one.answer.done()]
                try:
                    answers = await self._answers([one.question for one in group.running], run)
                except Exception:
                    _log.exception("a shared search failed; each goes on alone")
                    answers = [None] * len(group.running)
                for one, answer in zip(group.running, answers, strict=True):
                    if not one.answer.done():
                        one.answer.set_result(answer)
        finally:
            if self._groups.get(key) is group:
                del self._groups[key]
            for one in [*group.running, *group.next]:
                if not one.answer.done():
                    one.answer.set_result(None)

    async def _answers(self, questions: list[Question], run: Run) -> list[Answer]:
        if len(questions) > 1:
            printed = await run(questions)
            if printed is not None:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, self._given_out, questions, *printed)
        return [None] * len(questions)

    def _given_out(self, questions: list[Question], printed: LineReader, is_left_out: LeaveOut) -> list[Answer]:
        files = [_File(path, lines, self._width) for path, lines in printed.files() if not is_left_out(path)]
        folds = any(one.may_fold for one in questions) and any(file.folds for file in files)
        as_it_is, lower = _Printed(files, [file.content for file in files]), None
        if any(one.ignore_case for one in questions):
            lower = _Printed(files, [file.content.lower() for file in files])  # of bytes: ASCII letters only
        return [
            None if folds and one.may_fold else self._own(one, (one.ignore_case and lower) or as_it_is)
            for one in questions
        ]

    def _own(self, question: Question, printed: _Printed) -> Answer:
        ignore_case = question.ignore_case
        texts = [text.lower() for text in question.texts] if ignore_case else list(question.texts)
        hits: list[FileHits] = []
        left = self._keep
        for file, looked_at in printed.holding(texts):
            found = texts if len(texts) == 1 else [text for text in texts if text in looked_at]
            if file.has_long_line or len(found) > 1:
                own = _lines_with(file.content, looked_at, found)
                count = len(own)
                if max(map(len, own)) >= self._width:
                    return None
            else:
                own = _lines_with(file.content, looked_at, found, max(1, left))
                count = _line_count(looked_at, found[0])
            rank, telling = file.definition(found, ignore_case, question.words) or (OTHER, own[0])
            kept = b"".join(line + b"\n" for line in own[: max(0, left)])
            hits.append(FileHits(file.path, count, kept, rank, telling))
            left -= count
        return hits


def _lines_with(content: bytes, looked_at: bytes, texts: list[bytes], most: int = sys.maxsize) -> list[bytes]:
    """The lines that hold one of the texts, looked at in one form and given back in the other; in order if the texts
    are several, at most so many if it is one."""
    places: dict[int, int] = {}
    for text in texts:
        at = looked_at.find(text)
        while at >= 0 and len(places) < most:
            end = looked_at.find(b"\n", at)
            places[looked_at.rfind(b"\n", 0, at) + 1] = end
            at = looked_at.find(text, end)
    return [content[start : places[start]] for start in sorted(places)]


def _line_count(lines: bytes, text: bytes) -> int:
    """Lines that hold a text."""
    return len(re.findall(re.escape(text) + rb"[^\n]*+", lines))


class _Printed:
    """All that was printed, in one form: as it is, or in lower case."""

    def __init__(self, files: list[_File], contents: list[bytes]) -> None:
        self._files, self._contents = files, contents
        self._whole = b"".join(contents)
        self._ends = list(accumulate(map(len, contents)))

    def holding(self, texts: list[bytes]) -> Iterator[tuple[_File, bytes]]:
        """The files that hold one of the texts, each with its lines in this form."""
        if len(texts) > 1:
            for file, content in zip(self._files, self._contents, strict=True):
                if any(text in content for text in texts):
                    yield file, content
            return
        at = self._whole.find(texts[0])
        while at >= 0:
            number = bisect_right(self._ends, at)
            yield self._files[number], self._contents[number]
            at = self._whole.find(texts[0], self._ends[number])


class _File:
    """The lines that were printed of a file, each as `number:text`, and what all questions ask of them."""

    def __init__(self, path: bytes, content: bytes, width: int) -> None:
        self.path, self.content = path, content
        self.has_long_line = len(content) > width and max(map(len, content.split(b"\n"))) >= width
        self._definitions = list(definitions(content))
        self._defining = b"\n".join([line for line, _ in self._definitions]).lower()

    @property
    def folds(self) -> bool:
        """Whether a letter outside ASCII is one inside it when case is ignored."""
        return not self.content.isascii() and _FOLDS_TO_ASCII.search(self.content) is not None

    def definition(self, texts: list[bytes], ignore_case: bool, words: frozenset[bytes]) -> tuple[int, bytes] | None:
        """Rank and line of the first that holds a text and defines one of the words, or else defines anything."""
        if not any(text.lower() in self._defining for text in texts):  # as in most files
            return None
        best: tuple[int, bytes] | None = None
        for line, name in self._definitions:
            looked_at = line.lower() if ignore_case else line
            for text in texts:
                if text in looked_at:
                    if name in words:
                        return NAMES_IT, line
                    best = best or (DEFINES, line)
        return best
