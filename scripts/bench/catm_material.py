"""Trajectories for scripts/bench/catm.py: made up, or real ones replayed with new ids, in the Nebius set's columns."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from codegrep.labels.trajectory import SCHEMA, Call, Message, Trajectory, to_arrow

#: The columns of the set that mining never reads, so that a file has them too.
EXTRA = pa.schema([("model_patch", pa.string()), ("exit_status", pa.string())])
ROW_GROUP = 3946  # 67,074 rows in 17 row groups, as in the real set

_WORDS = (
    "the function returns a value that depends on state of cache and this module handles request parsing before "
    "handler sees it so we should check how default is applied when key is missing or empty in the registry"
).split()


def made_up(count: int, seed: int = 0) -> pa.Table:
    """Trajectories of about 64 turns and 150,000 characters, shaped like OpenHands': views, edits, shell calls."""
    draw = random.Random(seed)
    return to_arrow([_trajectory(number, draw) for number in range(count)])


def _trajectory(number: int, draw: random.Random) -> Trajectory:
    repo = f"owner{number % 40}/name{number % 40}"
    root = f"/workspace/{repo.replace('/', '__')}__1.0"
    files = [f"src/part{draw.randrange(30)}/module{draw.randrange(60)}.py" for _ in range(8)]
    messages = [
        Message("system", _prose(draw, 900)),
        Message("user", f"<issue_description>\n{_prose(draw, 250)}\n</issue_description>"),
    ]
    for turn in range(draw.randint(30, 90)):
        kind = draw.random()
        path = f"{root}/{draw.choice(files)}"
        if kind < 0.2:
            name, arguments = "str_replace_editor", {"command": "view", "path": path}
            if draw.random() < 0.5:
                arguments["view_range"] = [1, draw.randint(20, 400)]  # type: ignore[assignment]
            result = f"Here's the result of running `cat -n` on {path}:\n{_code(draw, 6000)}"
        elif kind < 0.55:
            code = _code(draw, draw.randint(200, 3000))
            name, arguments = "str_replace_editor", {"command": "str_replace", "path": path, "old_str": code}
            arguments["new_str"] = code.replace("value", "result")
            result = f"The file {path} has been edited.\n{_code(draw, 700)}"
        else:
            name, arguments = "execute_bash", {"command": f"cd {root} && python -m pytest -q {draw.choice(files)}"}
            result = _code(draw, draw.randint(50, 3500))
        call = Call(f"call_{turn}", name, json.dumps(arguments))
        messages.append(Message("assistant", _prose(draw, draw.randint(0, 90)), (call,)))
        messages.append(Message("tool", result, call_id=call.id, name=name))
    return Trajectory(
        f"made-{number}", f"{repo.replace('/', '__')}-{number // 10}", repo, tuple(messages), number % 2 == 0
    )


def _prose(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(_WORDS, k=words))


def _code(draw: random.Random, characters: int) -> str:
    lines = []
    size = 0
    while size < characters:
        line = f"    {draw.choice(_WORDS)}_{draw.randrange(1000)} = {draw.choice(_WORDS)}(value, {draw.randrange(99)})"
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)


def replayed(table: pa.Table, rows: int, path: Path, *, row_group: int = ROW_GROUP, seed: int = 0) -> None:
    """Write `rows` trajectories: those of a table over and over, in an order of their own, each with a new id."""
    draw = random.Random(seed)
    schema = pa.schema([*SCHEMA, *EXTRA])
    partial = path.with_suffix(".partial")
    # Texts are not dictionary-encoded: a set without repetition would gain nothing by it.
    with parquet.ParquetWriter(partial, schema, compression="snappy", use_dictionary=["repo", "instance_id"]) as out:
        for start, stop in _spans(rows, row_group):
            places = [draw.randrange(table.num_rows) for _ in range(start, stop)]
            group = table.take(pa.array(places))
            ids = pa.array([f"replay-{number:06d}" for number in range(start, stop)])
            group = group.set_column(group.column_names.index("trajectory_id"), "trajectory_id", ids)
            for field in EXTRA:
                group = group.append_column(field, pa.nulls(group.num_rows, field.type))
            out.write_table(group, row_group_size=row_group)
    partial.replace(path)


def instances(table: pa.Table) -> Iterator[str]:
    """Lines of an instances file for made-up trajectories: each issue's patch changes one file."""
    seen: set[str] = set()
    for row in table.select(["instance_id", "repo"]).to_pylist():
        if row["instance_id"] in seen:
            continue
        seen.add(row["instance_id"])
        patch = "--- a/src/part1/module1.py\n+++ b/src/part1/module1.py\n@@ -1 +1 @@\n-a\n+b\n"
        yield json.dumps({**row, "base_commit": "0" * 40, "problem_statement": "text", "patch": patch})


def _spans(rows: int, step: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, step):
        yield start, min(rows, start + step)
