"""Searches for plain texts that are asked for at the same time, on the same files, as one process.

A turn asks several things at once, and the rollouts of a prompt ask about one tree. ripgrep needs hardly longer for ten
texts than for one: it reads the files once. Each line that it prints is then given to those whose text it holds. While
one process runs, the next questions gather.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from codegrep.sandbox.tools.literals import Text
from codegrep.sandbox.tools.matches import Found, LineReader
from codegrep.sandbox.tools.output_columns import Printed

_log = logging.getLogger(__name__)
# Questions that one process answers.
_MOST = 32
# Bytes of a text that few lines hold by chance.
_TELLING = 3


@dataclass(frozen=True)
class Question:
    """What one search is about.

    Attributes:
        pattern: nothing but texts, as whole_literals reads it.
        texts: those texts; a line has to hold one.
        words: see matches.name_words.
    """

    pattern: str
    texts: tuple[Text, ...]
    ignore_case: bool
    words: frozenset[bytes]

    @property
    def can_be_shared(self) -> bool:
        """A text that begins like a line's number might be found in the number."""
        return not any(text[0][:1].isdigit() or text[0].startswith(b":") for text in self.texts)

    @property
    def is_broad(self) -> bool:
        """Whether most lines of a tree may hold one of the texts; the others need not look through them."""
        return any(max(map(len, text)) < _TELLING for text in self.texts)

    @property
    def may_fold(self) -> bool:
        """Whether a letter outside ASCII can stand for one of the texts'."""
        return self.ignore_case and any(
            letter in b"".join(text).lower() for text in self.texts for letter in (b"k", b"s")
        )


#: Whether a file, by its path, is no part of any answer.
LeaveOut = Callable[[bytes], bool]
#: Runs one process for several questions; gives back what it printed and which files of that are left out, or None when
#: that is no answer.
Run = Callable[[Sequence[Question]], Awaitable[tuple[LineReader, LeaveOut] | None]]
Answer = Found | None


def any_of(questions: Sequence[Question]) -> str:
    """Return a pattern for the lines of all questions, each with its own case; to be searched for with case."""
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
        most_files: files that an answer tells of.
        width: bytes of a line that count; see matches.numbered.
        threads: where lines are given to their questions.
    """

    def __init__(self, keep: int, most_files: int, width: int, threads: Executor) -> None:
        self._keep, self._most_files, self._width, self._threads = keep, most_files, width, threads
        self._groups: dict[Hashable, _Group] = {}

    async def ask(self, same: Hashable, question: Question, run: Run) -> Answer:
        """Return what is found; None when the question has to be asked alone.

        Cancelling ends the process when nobody else waits for it.

        Args:
            same: equal for questions that may share a process: about the same files.
        """
        if not question.can_be_shared:
            return None
        loop = asyncio.get_running_loop()
        key = (id(loop), same)
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
        lines = Printed(printed, is_left_out, self._width)
        folds = any(one.may_fold for one in questions) and lines.folds
        return [
            None
            if folds and one.may_fold
            else lines.found(one.texts, one.ignore_case, one.words, self._keep, self._most_files)
            for one in questions
        ]
