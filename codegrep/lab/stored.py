"""Stored rollouts as outcomes, read by column: tokens and tool texts, nearly all of a file's bytes, stay unread.

What comes out equals `codegrep.rollout.outcome.outcome_for` on the same records (a test holds the two together); it is
built from columns because 100,000 records with their calls would take minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from codegrep.errors import DataError
from codegrep.issues.issue import Issue, issue_of
from codegrep.protocol.answer import Answer
from codegrep.protocol.parse import parse_message
from codegrep.rewards.governance import Conduct
from codegrep.rewards.outcome import Outcome
from codegrep.rollout.outcome import call_key, mined_files
from codegrep.rollout.record import is_executed
from codegrep.rollout.store import read_columns

GroupBy = Literal["step", "issue"]
ROWS_AT_ONCE = 8192
T = TypeVar("T", bound=Hashable)

_COLUMNS = ("rollout_id", "instance_id", "repo", "source", "step", "exit_cause", "answered", "answer", "gold_files")
_NESTED = (
    "turns.list.element.start",
    "turns.list.element.end",
    "turns.list.element.calls.list.element.name",
    "turns.list.element.calls.list.element.arguments",
    "turns.list.element.calls.list.element.status",
)
_TEXT = "turns.list.element.text"


@dataclass(frozen=True)
class Stored:
    """Rollouts of one or several folders.

    Attributes:
        rollout_ids, instance_ids, outcomes, conducts: (n,) in the order of reading.
        turn_tokens: (n,) sampled tokens of each assistant turn.
        groups: (n,) number of the group, from 0.
        group_names: of each group.
        left_out: rollouts and files that are not among them, counted by reason.
    """

    rollout_ids: list[str]
    instance_ids: list[str]
    outcomes: list[Outcome]
    conducts: list[Conduct]
    turn_tokens: list[tuple[int, ...]]
    groups: NDArray[np.intp]
    group_names: list[str]
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.outcomes)


def rollout_folders(places: Iterable[Path]) -> list[Path]:
    """Folders with rollouts at or below `places`; of a place that holds training runs and others only the former.

    Raises:
        DataError: a place is not there, or holds none.
    """
    found: dict[Path, None] = {}
    for place in places:
        if not place.is_dir():
            raise DataError(
                f"there is no folder {place}", "Give an outputs folder, an artifact, or its rollouts folder"
            )
        below = sorted({part.parent for part in place.rglob("part-*.parquet")})
        if not below:
            raise DataError(f"no rollouts are stored in {place}", "Rollouts are in outputs/artifacts/train-*/rollouts")
        trained = [folder for folder in below if folder.parent.name.startswith("train-")]
        found.update(dict.fromkeys(trained or below))
    return list(found)


def read_stored(
    folders: Sequence[Path],
    issues: Mapping[str, Issue] | None = None,
    verdicts: Mapping[str, bool] | None = None,
    *,
    asked: Sequence[Mapping[str, bool]] = (),
    group_by: GroupBy = "step",
    with_answers: bool = True,
    advance: Callable[[int], object] = lambda rows: None,
) -> Stored:
    """Read every rollout of the folders.

    A rollout that was sampled again after a restart is there twice; the later one counts. A damaged file is left out
    and counted.

    Args:
        folders: see `rollout_folders`. Rollouts of different folders are never in one group.
        issues: by instance id, for gold lines and entities, which are not part of a rollout.
        verdicts: of a judge, by rollout id. asked: more of them, one mapping for each folder.
        group_by: "step": one issue's rollouts of one training step, the groups that GRPO compared; "issue": all of an
            issue's rollouts in a folder.
        with_answers: read line ranges, entities and malformed answers too, from the text of the turns.
        advance: told of rows as they are read.

    Raises:
        DataError: not one rollout could be read.
    """
    left_out: Counter[str] = Counter()
    known, judged = issues or {}, verdicts or {}
    rows: dict[tuple[int, str], _Row] = {}
    for number, folder in enumerate(folders):
        said = {**asked[number], **judged} if asked else judged
        for table in _tables(folder, left_out, with_answers):
            for row in _rows(table, known, said, with_answers):
                key = (number, row.rollout_id)
                if rows.pop(key, None) is not None:  # taken out, so that the later one also stands later
                    left_out["sampled again later"] += 1
                rows[key] = row
            advance(table.num_rows)
    if not rows:
        raise DataError(f"no rollout could be read ({_reasons(left_out)})", "Check the folder, or the version")
    names = [
        f"{folders[number].parent.name}/{row.instance_id}" + (f"/step {row.step}" if group_by == "step" else "")
        for (number, _), row in rows.items()
    ]
    numbered = {name: index for index, name in enumerate(dict.fromkeys(names))}
    values = list(rows.values())
    return Stored(
        [row.rollout_id for row in values],
        [row.instance_id for row in values],
        [row.outcome for row in values],
        [row.conduct for row in values],
        [row.turn_tokens for row in values],
        np.array([numbered[name] for name in names], dtype=np.intp),
        list(numbered),
        {reason: count for reason, count in left_out.items() if count},
    )


@dataclass(frozen=True)
class _Row:
    rollout_id: str
    instance_id: str
    step: int
    outcome: Outcome
    conduct: Conduct
    turn_tokens: tuple[int, ...]


def _reasons(left_out: Mapping[str, int]) -> str:
    return "; ".join(f"{count} x {reason}" for reason, count in left_out.items() if count) or "no files"


def _tables(folder: Path, left_out: Counter[str], with_answers: bool) -> Iterator[pa.Table]:
    """Tables of about ROWS_AT_ONCE rows: a training step writes many small files."""
    columns = [*_COLUMNS, *_NESTED, *([_TEXT] if with_answers else [])]
    waiting: list[pa.Table] = []
    for part in sorted(folder.glob("part-*.parquet")):
        try:
            waiting.append(read_columns(part, columns))
        except DataError:
            left_out["file that cannot be read"] += 1
            continue
        if sum(table.num_rows for table in waiting) >= ROWS_AT_ONCE:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _rows(
    table: pa.Table, issues: Mapping[str, Issue], verdicts: Mapping[str, bool], with_answers: bool
) -> Iterator[_Row]:
    calls = _Calls.of(table)
    plain = {name: table[name].to_pylist() for name in _COLUMNS}
    answers = _answers(table, calls.turn_ends) if with_answers else [None] * table.num_rows
    unread = _malformed_answers(table, calls.turn_ends) if with_answers else [0] * table.num_rows
    gold_sets: dict[tuple[str, ...], frozenset[str]] = {}
    for index in range(table.num_rows):
        first, last = calls.turn_ends[index], calls.turn_ends[index + 1]
        instance_id, rollout_id = plain["instance_id"][index], plain["rollout_id"][index]
        issue, answer = issue_of(issues, instance_id), answers[index]
        files = tuple(plain["gold_files"][index])
        gold = gold_sets.setdefault(files, frozenset(files))
        tokens = tuple(calls.tokens[first:last])
        exit_cause = plain["exit_cause"][index]
        outcome = Outcome(
            predicted=tuple(plain["answer"][index]),
            gold=gold,
            predicted_ranges=answer.ranges if answer else (),
            gold_ranges=issue.gold_ranges if issue else (),
            calls_per_turn=tuple(calls.executed[first:last]),
            answered=plain["answered"][index],
            exit_cause=exit_cause,
            unique_calls_per_turn=tuple(calls.fresh[first:last]),
            malformed_calls=sum(calls.malformed[first:last]),
            malformed_answers=unread[index],
            mined_files=frozenset(mined_files(files, issue.gold_ranges)) if issue else frozenset(),
            generated_tokens=sum(tokens),
            predicted_entities=answer.entities if answer else (),
            gold_entities=frozenset(issue.gold_entities) if issue and issue.gold_entities is not None else None,
            verdict=verdicts.get(rollout_id),
        )
        conduct = Conduct(exit_cause, tuple(calls.made[first:last]))
        yield _Row(rollout_id, instance_id, plain["step"][index], outcome, conduct, tokens)


@dataclass(frozen=True)
class _Calls:
    """Counts of every turn of a table, as plain lists over all turns; turn_ends has the bounds of each rollout."""

    turn_ends: list[int]
    tokens: list[int]
    made: list[int]
    executed: list[int]
    fresh: list[int]
    malformed: list[int]

    @classmethod
    def of(cls, table: pa.Table) -> _Calls:
        turns, turn_ends = _list(table["turns"].combine_chunks())
        calls, call_ends = _list(turns.field("calls"))
        turn_of_call = np.repeat(np.arange(len(turns)), np.diff(call_ends))
        rollout_of_turn = np.repeat(np.arange(len(turn_ends) - 1), np.diff(turn_ends))
        name, status = calls.field("name"), calls.field("status")
        runs, run_of = _distinct(name, status, is_executed)
        executed = np.array(runs, dtype=bool)[run_of]
        # Calls are equal by the key that `outcome_of` uses; each distinct pair of name and arguments is read once.
        keys, key_of = _distinct(name, calls.field("arguments"), call_key)
        rollout_of_call = rollout_of_turn[turn_of_call[executed]]
        pair = rollout_of_call * len(keys) + key_of[executed]
        _, firsts = np.unique(pair, return_index=True)
        fresh = turn_of_call[executed][firsts]
        malformed = turn_of_call[np.asarray(pc.equal(name, ""), dtype=bool)] if len(calls) else turn_of_call

        def per_turn(members: NDArray[np.intp]) -> list[int]:
            counted: list[int] = np.bincount(members, minlength=len(turns)).tolist()
            return counted

        spans = turns.field("end").to_numpy() - turns.field("start").to_numpy()
        return cls(
            turn_ends.tolist(),
            spans.tolist(),
            per_turn(turn_of_call),
            per_turn(turn_of_call[executed]),
            per_turn(fresh),
            per_turn(malformed),
        )


def _list(array: pa.ListArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """The values of a list column and the bounds of each list in them, whatever slice of a larger array it is."""
    lengths = np.asarray(pc.list_value_length(array).fill_null(0), dtype=np.int64)
    return array.flatten(), np.concatenate([[0], np.cumsum(lengths)])


def _distinct(
    first: pa.Array, second: pa.Array, function: Callable[[str, str], T]
) -> tuple[list[T], NDArray[np.int64]]:
    """Distinct results of `function` on pairs of strings, and for each pair the place of its own among them."""
    joined = pc.binary_join_element_wise(first, second, "\0").dictionary_encode()
    results: dict[T, int] = {}
    of_value = []
    for text in joined.dictionary.to_pylist():
        left, _, right = text.partition("\0")
        of_value.append(results.setdefault(function(left, right), len(results)))
    return list(results), np.array(of_value, dtype=np.int64)[joined.indices.to_numpy()]


def _answers(table: pa.Table, turn_ends: Sequence[int]) -> list[Answer | None]:
    """Answers that hold more than files; None also stands for one that holds files alone."""
    texts = table["turns"].combine_chunks().flatten().field("text")
    rows = [i for i in range(table.num_rows) if turn_ends[i + 1] > turn_ends[i]]
    last = texts.take(pa.array([turn_ends[i + 1] - 1 for i in rows], type=pa.int64()))
    # A backslash may spell either key in JSON.
    telling = pc.match_substring_regex(last, r"line_ranges|entities|\\u")
    answers: list[Answer | None] = [None] * table.num_rows
    answered = table["answered"].to_pylist()
    for index, tells, text in zip(rows, telling.to_pylist(), last.to_pylist(), strict=True):
        if tells and answered[index]:
            answers[index] = parse_message(text).answer
    return answers


def _malformed_answers(table: pa.Table, turn_ends: Sequence[int]) -> list[int]:
    """Answer blocks of each rollout that could not be read, in all of its turns; equal texts are parsed once."""
    texts = table["turns"].combine_chunks().flatten().field("text").dictionary_encode()
    holds = pc.match_substring(texts.dictionary, "<answer>").to_pylist()
    of_text = [
        parse_message(text).malformed_answers if some else 0
        for text, some in zip(texts.dictionary.to_pylist(), holds, strict=True)
    ]
    counts = np.array(of_text, dtype=np.int64)[texts.indices.to_numpy()]
    before = np.concatenate([[0], np.cumsum(counts)])
    ends = np.array(turn_ends)
    made: list[int] = (before[ends[1:]] - before[ends[:-1]]).tolist()
    return made
