"""Candidates: one for each file that a trajectory read, with the evidence for it, and their Arrow table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from codegrep.labels.tokens import TokenCounter
from codegrep.labels.trajectory import Read

#: Candidates of one shard. Everything that a label's provenance needs is here.
SCHEMA = pa.schema(
    [
        ("row", pa.int32()),  # of the shard
        ("trajectory_id", pa.string()),
        ("instance_id", pa.string()),
        ("repo", pa.string()),
        ("resolved", pa.int64()),
        ("path", pa.string()),
        ("message", pa.int32()),  # index of the assistant message with the call, in the trajectory
        ("call", pa.int32()),  # index of the call in the message
        ("call_id", pa.string()),
        ("tool", pa.string()),
        ("turn", pa.int32()),  # number of the assistant message, from 1
        ("reads", pa.int32()),  # how often the trajectory read the file
        ("reasoning_message", pa.int32()),  # index of the message that the evidence is from; -1: none
        ("tokens", pa.int32()),  # of the evidence: l(f)
        ("evidence", pa.string()),  # the post-reasoning
        ("judge", pa.string()),  # which judge; "" where it was not asked
        ("verdict", pa.string()),  # RELEVANT, NOT_RELEVANT, or "" (not asked, or no answer)
        ("votes_relevant", pa.int32()),
        ("votes_not_relevant", pa.int32()),
        ("reason", pa.string()),  # rule that spoke, or the model's words
        ("error", pa.string()),  # why there is no verdict though one was wanted
    ]
)


@dataclass
class LengthReport:
    """How long post-reasoning is under both readings, over all reads (CodeGrep 3.4: OpenHands thinks in a tool).

    Attributes:
        reads: how many.
        empty, short: reads with no text, with fewer tokens than the minimum, by "content" and "content and thought".
        thoughts: reads whose next message holds a `think` call.
    """

    reads: int = 0
    thoughts: int = 0
    empty: Counter[str] = field(default_factory=Counter)
    short: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Candidate:
    """The read of a file with the longest post-reasoning, and how often its trajectory read the file."""

    read: Read
    tokens: int
    evidence: str
    reads: int


def select(
    reads: Sequence[Read], counter: TokenCounter, *, with_thought: bool, min_tokens: int
) -> tuple[list[Candidate], LengthReport]:
    """One candidate for each (trajectory, file): the read with the longest post-reasoning, the earliest of equals.

    Parallel reads share the text of the message that follows them; it is counted once.
    """
    content = _lengths(reads, counter, thought=False)
    thoughtful = [read for read in reads if read.thought]
    whole = {**content, **_lengths(thoughtful, counter, thought=True)}
    lengths = whole if with_thought else content
    report = LengthReport(len(reads), len(thoughtful))
    for label, by_message in (("content", content), ("content and thought", whole)):
        found = [by_message[read.row, read.reasoning] for read in reads]
        report.empty[label] = sum(1 for tokens in found if not tokens)
        report.short[label] = sum(1 for tokens in found if tokens < min_tokens)
    best: dict[tuple[int, str], tuple[int, Read, int]] = {}
    for read in reads:
        key, tokens = (read.row, read.path), lengths[read.row, read.reasoning]
        held = best.get(key)
        if held is None:
            best[key] = (tokens, read, 1)
        elif tokens > held[0]:
            best[key] = (tokens, read, held[2] + 1)
        else:
            best[key] = (held[0], held[1], held[2] + 1)
    made = [Candidate(read, tokens, read.post_reasoning(with_thought), n) for tokens, read, n in best.values()]
    return made, report


def _lengths(reads: Sequence[Read], counter: TokenCounter, thought: bool) -> dict[tuple[int, int], int]:
    texts = {(read.row, read.reasoning): read.post_reasoning(thought) for read in reads}
    return dict(zip(texts, counter.counts(list(texts.values())), strict=True))


def to_table(candidates: Sequence[Candidate], rows: Sequence[dict[str, Any]], start: int) -> pa.Table:
    """Unjudged candidates.

    Args:
        rows: for each row of the batch: trajectory_id, instance_id, repo, resolved.
        start: number of the batch's first row in its shard.
    """
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for candidate in candidates:
        read, row = candidate.read, rows[candidate.read.row]
        values = {
            **row,
            "row": start + read.row,
            "path": read.path,
            "message": read.message,
            "call": read.call,
            "call_id": read.call_id,
            "tool": read.tool,
            "turn": read.turn,
            "reads": candidate.reads,
            "reasoning_message": read.reasoning,
            "tokens": candidate.tokens,
            "evidence": candidate.evidence,
            "judge": "",
            "verdict": "",
            "votes_relevant": 0,
            "votes_not_relevant": 0,
            "reason": "",
            "error": "",
        }
        for name, column in columns.items():
            column.append(values[name])
    return pa.table(columns, schema=SCHEMA)
