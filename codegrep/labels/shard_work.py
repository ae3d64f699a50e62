"""What is done to one shard: read, mine, count tokens, judge. Pure: a shard in, a table and a record out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from codegrep.judges.files import NOT_RELEVANT, RELEVANT, Judge, Question, Relevance
from codegrep.labels import candidates as records
from codegrep.labels.columnar import mine
from codegrep.labels.requests import ReadRules
from codegrep.labels.shards import Shard, batches
from codegrep.labels.tokens import TokenCounter
from codegrep.labels.trajectory import Mined, repo_of

#: Raised when the same trajectories would give other candidates.
MINING_VERSION = 2

_TASK_MARKS = ("issue_description", "pr_description", "problem_statement")


@dataclass(frozen=True)
class MiningSettings:
    """What decides a shard's candidates, besides its content.

    Attributes:
        with_thought: the `think` tool's text counts as post-reasoning too (the paper: content only).
        min_tokens: shorter post-reasoning is not judged (30).
        exclude_repositories: lower-case owner/name. exclude_instances: ids. Neither is mined at all.
        only_resolved: leave out attempts that are known to have failed or of unknown outcome.
    """

    rules: ReadRules = field(default_factory=ReadRules)
    with_thought: bool = False
    min_tokens: int = 30
    exclude_repositories: frozenset[str] = frozenset()
    exclude_instances: frozenset[str] = frozenset()
    only_resolved: bool = False


@dataclass
class ShardRecord:
    """Counts of one shard; those of many are added. Attributes are named as in the funnel of the data card."""

    rows: int = 0
    excluded: Counter[str] = field(default_factory=Counter)
    empty: int = 0  # trajectories without a message
    calls: int = 0
    read_calls: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    ledger: Counter[str] = field(default_factory=Counter)
    reads: int = 0
    thoughts: int = 0
    no_text: Counter[str] = field(default_factory=Counter)
    short: Counter[str] = field(default_factory=Counter)
    files: int = 0
    with_files: int = 0  # trajectories with a candidate
    turns: Counter[str] = field(default_factory=Counter)  # reads by turn
    lengths: Counter[str] = field(default_factory=Counter)  # candidates by tokens
    judged: int = 0
    relevant: int = 0
    not_relevant: int = 0
    ambiguous: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    usage: Counter[str] = field(default_factory=Counter)
    quarantine: list[dict[str, str]] = field(default_factory=list)

    def add(self, other: ShardRecord) -> None:
        """Add another shard's counts."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, Counter):
                mine.update(value)
            elif isinstance(mine, list):
                mine.extend(value)
            else:
                setattr(self, name, mine + value)

    def to_json(self) -> dict[str, Any]:
        """For json.dumps."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ShardRecord:
        """Inverse of to_json."""
        made = cls()
        for name, item in value.items():
            setattr(made, name, Counter(item) if isinstance(getattr(made, name), Counter) else item)
        return made


def mine_shard(
    shard: Shard, settings: MiningSettings, counter: TokenCounter, *, with_tasks: bool
) -> tuple[pa.Table, ShardRecord]:
    """Unjudged candidates of a shard.

    Args:
        with_tasks: add a column `task`, the issue's text from the trajectory's first user message, for judges that
            want it.

    Raises:
        OSError, pa.ArrowException: the shard cannot be read; single rows that cannot be mined are quarantined.
    """
    record = ShardRecord()
    tables = [records.to_table([], [], 0)]
    tasks: list[str] = []
    start = 0
    for batch in batches(shard):
        rows, trajectories, kept = _rows(batch, settings, record)
        mined, bad = _mine(trajectories, settings.rules)
        for row, reason in bad.items():
            where = f"{shard.where} row {start + kept[row]}"
            record.quarantine.append({"where": where, "trajectory_id": rows[row]["trajectory_id"], "reason": reason})
        made, lengths = records.select(
            mined.reads, counter, with_thought=settings.with_thought, min_tokens=settings.min_tokens
        )
        table = records.to_table(made, rows, start)
        places = pa.array([start + kept[candidate.read.row] for candidate in made], pa.int32())
        tables.append(table.set_column(0, "row", places))
        if with_tasks:
            by_row = {row: _task(trajectories[row]) for row in {candidate.read.row for candidate in made}}
            tasks += [by_row[candidate.read.row] for candidate in made]
        _count(record, batch.num_rows, trajectories, mined, made, lengths)
        start += batch.num_rows
    table = pa.concat_tables(tables).combine_chunks()
    return (table.append_column("task", pa.array(tasks, pa.string())) if with_tasks else table), record


def judge_table(table: pa.Table, record: ShardRecord, judge: Judge, min_tokens: int) -> pa.Table:
    """Candidates with verdicts; those with less than `min_tokens` are not asked about. Counts go to `record`."""
    lengths = table.column("tokens").to_pylist()
    asked = [n for n, tokens in enumerate(lengths) if tokens >= min_tokens]
    some = table.select([c for c in ("path", "evidence", "task") if c in table.column_names]).take(asked)
    before = asdict(judge.usage)
    verdicts = judge.judge([Question(**row) for row in some.to_pylist()])
    record.usage.update(
        {name: value - before[name] for name, value in asdict(judge.usage).items() if name != "failures"}
    )
    return with_verdicts(table, record, dict(zip(asked, verdicts, strict=True)), judge.label)


def with_verdicts(table: pa.Table, record: ShardRecord, verdicts: dict[int, Relevance], label: str) -> pa.Table:
    """Put verdicts, by position, into the columns of a table."""
    none = Relevance("")
    rows = [verdicts.get(n, none) for n in range(table.num_rows)]
    columns: dict[str, list[Any]] = {
        "judge": [label if n in verdicts else "" for n in range(table.num_rows)],
        "verdict": [one.label for one in rows],
        "votes_relevant": [one.votes[0] for one in rows],
        "votes_not_relevant": [one.votes[1] for one in rows],
        "reason": [one.reason for one in rows],
        "error": [one.error for one in rows],
    }
    record.judged += len(verdicts)
    record.relevant += sum(1 for one in rows if one.label == RELEVANT)
    record.not_relevant += sum(1 for one in rows if one.label == NOT_RELEVANT)
    record.ambiguous += sum(1 for one in rows if one.ambiguous)
    record.errors.update(one.error for one in rows if one.error)
    for name, values in columns.items():
        kind = records.SCHEMA.field(name)
        table = table.set_column(table.column_names.index(name), kind, pa.array(values, kind.type))
    return table.select(records.SCHEMA.names)


def _rows(
    batch: pa.RecordBatch, settings: MiningSettings, record: ShardRecord
) -> tuple[list[dict[str, Any]], pa.Array, list[int]]:
    """Facts of the rows that are mined, their trajectories, and their places in the batch."""
    facts = []
    flat = {name: _column(batch, name) for name in ("trajectory_id", "instance_id", "repo", "resolved")}
    for n in range(batch.num_rows):
        instance = str(flat["instance_id"][n] or "")
        resolved = flat["resolved"][n]
        facts.append(
            {
                "trajectory_id": str(flat["trajectory_id"][n] or ""),
                "instance_id": instance,
                "repo": repo_of(str(flat["repo"][n] or ""), instance),
                "resolved": int(resolved) if isinstance(resolved, int | float) and resolved == resolved else None,
            }
        )
    kept = []
    for n, fact in enumerate(facts):
        if reason := _excluded(fact, settings):
            record.excluded[reason] += 1
        else:
            kept.append(n)
    trajectories = batch.column("trajectory")
    if len(kept) < len(facts):
        trajectories = trajectories.take(pa.array(kept, pa.int64()))
    return [facts[n] for n in kept], trajectories, kept


def _excluded(fact: dict[str, Any], settings: MiningSettings) -> str:
    if not fact["trajectory_id"] or not fact["instance_id"]:
        return "no id"
    if fact["repo"].lower() in settings.exclude_repositories:
        return "excluded repository"
    if fact["instance_id"] in settings.exclude_instances:
        return "held-out issue"
    return "not resolved" if settings.only_resolved and fact["resolved"] != 1 else ""


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    return list(batch.column(name).to_pylist())


def _mine(trajectories: pa.Array, rules: ReadRules) -> tuple[Mined, dict[int, str]]:
    """All rows at once; where that fails, row by row, so that one bad row spoils no other."""
    try:
        return mine(trajectories, rules), {}
    except Exception as error:  # whatever it is, the row that it is of has to be found
        if len(trajectories) <= 1:
            return Mined(len(trajectories)), {0: f"{type(error).__name__}: {str(error)[:200]}"} if len(
                trajectories
            ) else {}
    whole = Mined()
    bad: dict[int, str] = {}
    for row in range(len(trajectories)):
        one, failed = _mine(trajectories.slice(row, 1), rules)
        if failed:
            bad[row] = failed[0]
        whole.rows += one.rows
        whole.calls += one.calls
        whole.read_calls += one.read_calls
        whole.reads += [read._replace(row=row) for read in one.reads]
        whole.dropped = dict(Counter(whole.dropped) + Counter(one.dropped))
        whole.ledger = dict(Counter(whole.ledger) + Counter(one.ledger))
    return whole, bad


def _task(trajectory: pa.Scalar) -> str:
    """Return the issue's text: the first user message, or the marked part of it."""
    for message in trajectory.values if trajectory.is_valid else ():
        if message["role"].as_py() == "user":
            text = str(message["content"].as_py() or "")
            return task_of(text)
    return ""


def task_of(text: str) -> str:
    """Return the marked part of a message that begins first, or the whole."""
    opened = sorted((text.find(f"<{mark}>"), mark) for mark in _TASK_MARKS)
    for place, mark in opened:
        if place >= 0 and (end := text.find(f"</{mark}>", place)) >= 0:
            return text[place + len(mark) + 2 : end].strip()
    return text.strip()


def _count(
    record: ShardRecord,
    rows: int,
    trajectories: pa.Array,
    mined: Mined,
    made: Collection[records.Candidate],
    lengths: records.LengthReport,
) -> None:
    record.rows += rows
    record.empty += int(pc.sum(pc.equal(pc.fill_null(pc.list_value_length(trajectories), 0), 0)).as_py() or 0)
    record.calls += mined.calls
    record.read_calls += mined.read_calls
    record.dropped.update(mined.dropped)
    record.ledger.update(mined.ledger)
    record.reads += len(mined.reads)
    record.thoughts += lengths.thoughts
    record.no_text.update(lengths.empty)
    record.short.update(lengths.short)
    record.files += len(made)
    record.with_files += len({candidate.read.row for candidate in made})
    record.turns.update(str(read.turn) for read in mined.reads)
    record.lengths.update(str(candidate.tokens) for candidate in made)
