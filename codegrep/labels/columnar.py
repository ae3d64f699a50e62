"""Mining: from Arrow columns of trajectories to their reads. Python sees only the calls that survive the columns.

The nested columns are flattened once: messages with the row each belongs to, calls with the message each belongs to.
Which calls can be reads is decided on whole columns; a message's successor is found by binary search. The texts of tool
results, most of a set's bytes, are never copied: only their first characters are looked at, and only of reads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from codegrep.labels.arrow_text import TextColumn
from codegrep.labels.observations import HEAD, read_failure
from codegrep.labels.requests import (
    COMMAND,
    CREATE,
    CREATE_HEAD,
    VIEW,
    ReadRules,
    Request,
    created_path,
    created_path_of_head,
    shell_request,
    thought_of,
    view_request,
)
from codegrep.labels.trajectory import ASSISTANT, Mined, Read

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def mine(trajectories: pa.Array, rules: ReadRules) -> Mined:
    """Find the reads of a batch.

    Args:
        trajectories: list of messages, a list or large list of the structs of trajectory.SCHEMA; further fields are
            ignored, missing ones are taken as null.
    """
    return _Batch(trajectories, rules).mine()


class _Places(NamedTuple):
    """Where some calls stand, one number a call. Messages are numbered through the batch."""

    call: list[int]
    message: list[int]  # the assistant message that holds it
    row: list[int]
    first: list[int]  # message that the row starts with
    turn: list[int]
    results: list[int]  # tool messages that follow the message
    reasoning: list[int]  # next assistant message of the row; -1 where there is none


class _Batch:
    def __init__(self, trajectories: pa.Array, rules: ReadRules) -> None:
        self.rules = rules
        self.read_path = rules.paths.reader()
        self.rows = len(trajectories)
        per_row = _lengths(trajectories)
        messages = _Fields(trajectories.flatten())
        self.first = np.concatenate([[0], np.cumsum(per_row)])  # (rows + 1,) message that each row starts with
        self.row_of = np.repeat(np.arange(self.rows), per_row)
        role = messages.text("role")
        self.assistant = _among(role, ASSISTANT)
        self.tool = _is(role, "tool")
        self.content = TextColumn(messages.text("content"))
        self.answers = TextColumn(messages.text("tool_call_id"))
        calls = messages.list("tool_calls")
        per_message = _lengths(calls)
        self.calls_before = np.concatenate([[0], np.cumsum(per_message)])
        self.message_of = np.repeat(np.arange(len(self.row_of)), per_message)
        self.by_assistant = self.assistant[self.message_of]
        call = _Fields(calls.flatten())
        function = _Fields(call.struct("function"))
        self.name = function.text("name")
        self.tool_name = TextColumn(self.name)
        self.arguments = TextColumn(function.text("arguments"))
        self.call_id = TextColumn(call.text("id"))
        self.ids_of_row: tuple[int, Counter[str], defaultdict[str, list[int]]] = (-1, Counter(), defaultdict(list))

    def mine(self) -> Mined:
        editors = np.flatnonzero(_among(self.name, self.rules.editors) & self.by_assistant)
        plain = self.arguments.starts_with(COMMAND, editors)
        found = self._requests(editors[self.arguments.starts_with(VIEW, editors) | ~plain], view_request)
        if self.rules.shell_readers:
            readers = self.rules.shell_readers
            shells = np.flatnonzero(_among(self.name, self.rules.shells) & self.by_assistant)
            found += self._requests(shells, lambda arguments: shell_request(arguments, readers))
            found.sort(key=itemgetter(0))
        dropped: Counter[str] = Counter()
        ledger: Counter[str] = Counter()
        for _, request in found:
            if request.oddities:
                ledger.update(request.oddities)
        reads, calls = self._reads(found, dropped)
        if self.rules.drop_created and reads:
            creates = editors[self.arguments.starts_with(CREATE, editors) | ~plain]
            created = self._created(creates, {(read.row, read.path) for read in reads})
            kept = [r for r, call in zip(reads, calls, strict=True) if created.get((r.row, r.path), call) >= call]
            if len(kept) < len(reads):
                dropped["created by the agent"] += len(reads) - len(kept)
            reads = kept
        asked = sum(max(1, len(request.paths)) for _, request in found)
        return Mined(self.rows, int(self.by_assistant.sum()), asked, reads, dict(dropped), dict(ledger))

    def _requests(self, calls: Ints, read: Callable[[str], Request | None]) -> list[tuple[int, Request]]:
        text = self.arguments.text
        asked = ((call, read(text(call))) for call in calls.tolist())
        return [(call, request) for call, request in asked if request is not None]

    def _reads(self, found: list[tuple[int, Request]], dropped: Counter[str]) -> tuple[list[Read], list[int]]:
        """Return the successful reads, and the call of each."""
        at = self._places(np.array([call for call, _ in found], dtype=np.int64))
        shown: list[tuple[int, list[str], int]] = []  # place in `found`, files, message of the post-reasoning
        for n, (call, request) in enumerate(found):
            wanted = []
            for path in request.paths:
                kept, reason = self.read_path(path)
                if reason:
                    dropped[reason] += 1
                else:
                    wanted.append(kept)
            if not request.paths:
                dropped["unreadable arguments"] += 1
            if not wanted:
                continue
            observation = self._observation(call, at.message[n], at.results[n])
            if failure := self._failure(observation):
                dropped[failure] += len(wanted)
                continue
            reasoning = at.reasoning[n]
            if 0 <= reasoning < observation:  # the result came late
                reasoning = self._next_assistant(observation)
            shown.append((n, wanted, reasoning))
        thoughts = self._thoughts({reasoning for _, _, reasoning in shown})
        reads: list[Read] = []
        calls: list[int] = []
        for n, wanted, reasoning in shown:
            call, message, first = at.call[n], at.message[n], at.first[n]
            for path in wanted:
                calls.append(call)
                reads.append(
                    Read(
                        at.row[n],
                        message - first,
                        call - int(self.calls_before[message]),
                        self.call_id.text(call),
                        self.tool_name.text(call),
                        at.turn[n],
                        path,
                        reasoning - first if reasoning >= 0 else -1,
                        self.content.text(reasoning) if reasoning >= 0 else "",
                        thoughts.get(reasoning, ""),
                    )
                )
        return reads, calls

    def _places(self, calls: Ints) -> _Places:
        message = self.message_of[calls]
        row = self.row_of[message]
        end = self.first[row + 1]
        turns = np.concatenate([[0], np.cumsum(self.assistant)])
        stop = _next(np.flatnonzero(~self.tool), message, end)
        reasoning = _next(np.flatnonzero(self.assistant), message, end)
        numbers = (
            *(calls, message, row, self.first[row], turns[message + 1] - turns[self.first[row]]),
            *(stop - message - 1, np.where(reasoning < end, reasoning, -1)),
        )
        return _Places(*(column.tolist() for column in numbers))

    def _next_assistant(self, message: int) -> int:
        """Return the next assistant message of the row; -1 where there is none."""
        end = int(self.first[self.row_of[message] + 1])
        later = np.flatnonzero(self.assistant[message + 1 : end])
        return message + 1 + int(later[0]) if len(later) else -1

    def _failure(self, observation: int) -> str:
        """Why an observation gives no target; "" where it shows a file."""
        return read_failure(self.content.head(observation, HEAD)) if observation >= 0 else "no result"

    def _observation(self, call: int, message: int, results: int) -> int:
        """Return the tool message that answers a call, by its id, else by its place; -1 where there is none.

        The place counts behind the call alone, and not for a result with the id of another call.
        """
        first = int(self.calls_before[message])
        place = call - first
        wanted = self.call_id.text(call)
        if wanted:
            ids = [self.call_id.text(one) for one in range(first, int(self.calls_before[message + 1]))]
            near = (one for one in range(message + 1, message + 1 + results) if self.answers.text(one) == wanted)
            if ids.count(wanted) == 1 and (found := next(near, -1)) >= 0:
                return found
            calls, answers = self._ids(int(self.row_of[message]))
            if calls[wanted] == 1 and len(late := answers[wanted]) == 1 and late[0] > message:
                return late[0]
        if place >= results:
            return -1
        given = self.answers.text(message + 1 + place)
        foreign = given and given != wanted and self._ids(int(self.row_of[message]))[0][given]
        return -1 if foreign else message + 1 + place

    def _ids(self, row: int) -> tuple[Counter[str], defaultdict[str, list[int]]]:
        """How many calls of a row have each id, and which tool messages answer it. The last row's are kept."""
        if self.ids_of_row[0] != row:
            start, end = int(self.first[row]), int(self.first[row + 1])
            of_calls = range(int(self.calls_before[start]), int(self.calls_before[end]))
            answers: defaultdict[str, list[int]] = defaultdict(list)
            for message in (start + np.flatnonzero(self.tool[start:end])).tolist():
                answers[self.answers.text(message)].append(message)
            self.ids_of_row = row, Counter(self.call_id.text(call) for call in of_calls), answers
        return self.ids_of_row[1:]

    def _created(self, calls: Ints, read: set[tuple[int, str]]) -> dict[tuple[int, str], int]:
        """Return the call that first created each of the (row, path) that are read at some time."""
        found: dict[tuple[int, str], int] = {}
        at = self._places(calls)
        for n, call in enumerate(at.call):
            path = created_path_of_head(self.arguments.head(call, CREATE_HEAD))
            if path is None:
                path = created_path(self.arguments.text(call))
            key = (at.row[n], self.read_path(path)[0] if path else "")
            if key not in read or key in found:
                continue
            if not self._failure(self._observation(call, at.message[n], at.results[n])):
                found[key] = call
        return found

    def _thoughts(self, messages: set[int]) -> dict[int, str]:
        """Texts of the `think` calls of some messages."""
        found: dict[int, list[str]] = defaultdict(list)
        for call in np.flatnonzero(_is(self.name, self.rules.think) & self.by_assistant).tolist():
            message = int(self.message_of[call])
            if message in messages and (text := thought_of(self.arguments.text(call))):
                found[message].append(text)
        return {message: "\n".join(texts) for message, texts in found.items()}


def _next(positions: Ints, message: Ints, end: Ints) -> Ints:
    """(n,) the first of `positions` after each message, its row's end where there is none before that."""
    padded = np.append(positions, np.iinfo(np.int64).max)
    after: Ints = np.minimum(padded[np.searchsorted(positions, message, side="right")], end)
    return after


class _Fields:
    """Fields of an array of structs, null where a struct is null or has no such field."""

    def __init__(self, structs: pa.Array) -> None:
        self._length = len(structs)
        known = pa.types.is_struct(structs.type)
        names = [field.name for field in structs.type] if known else []
        self._columns = dict(zip(names, structs.flatten(), strict=True)) if known else {}

    def text(self, name: str) -> pa.Array:
        found = self._columns.get(name)
        if found is None or not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)):
            return pa.nulls(self._length, pa.string()) if found is None else _as_text(found)
        return found

    def struct(self, name: str) -> pa.Array:
        found = self._columns.get(name)
        return pa.nulls(self._length, pa.struct([])) if found is None else found

    def list(self, name: str) -> pa.Array:
        found = self._columns.get(name)
        if found is None or pa.types.is_null(found.type):
            return pa.nulls(self._length, pa.list_(pa.struct([])))
        return found


def _as_text(values: pa.Array) -> pa.Array:
    try:
        return pc.cast(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), pa.string())


def _lengths(lists: pa.Array) -> Ints:
    """Items of each list; 0 for null. Agrees with lists.flatten(), which leaves out what lies under nulls."""
    counts: Ints = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def _bools(values: pa.Array) -> Bools:
    found: Bools = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return found


def _is(values: pa.Array, word: str) -> Bools:
    return _bools(pc.equal(values, word))


def _among(values: pa.Array, words: tuple[str, ...]) -> Bools:
    return _bools(pc.is_in(values, value_set=pa.array(words, pa.string())))
