"""Measures the reward lab: stored rollouts through every design of the papers, from Parquet to the HTML page.

    python scripts/bench/replay.py           # 100,000 rollouts
    python scripts/bench/replay.py --quick   # 10,000

The rollouts are made here: 3 searching turns and an answer, about 5 calls a turn, 400 sampled tokens of 1,100, tool
texts of 1,200 characters, in files of 32 rows, as training writes them. Making them is not timed. The last line is one
JSON object; rollouts_per_s counts each rollout once, judged by all designs.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))

from codegrep.lab.designs import SHIPPED, load_designs
from codegrep.lab.page import replay_page
from codegrep.lab.replay import replay
from codegrep.lab.stored import read_stored
from codegrep.rollout.record import CallRecord, Rollout, Turn
from codegrep.rollout.store import SCHEMA, read_columns, write_rollouts

GROUP, ROWS_PER_PART = 8, 32
DISTINCT = 1024  # rollouts that are really different; further ones have other names


def made(number: int, dice: random.Random) -> Rollout:
    """One rollout of the size that is described above."""
    turns: list[Turn] = []
    at = 0
    for _ in range(3):
        calls = [
            CallRecord(n, "grep", json.dumps({"pattern": f"name_{dice.randrange(4000)}"}), "ok", "x" * 300, ["a.py"])
            for n in range(1, dice.randint(2, 8) + 1)
        ]
        turns.append(Turn(at, at + 110, "t" * 400, calls, observation="o" * 1200))
        at += 110 + 230
    files = dice.sample([f"pkg/f{n}.py" for n in range(6)], k=dice.randint(1, 3))
    ranges = [[path, 10, 10 + dice.randrange(40)] for path in files]
    text = f"<answer>{json.dumps({'files': files, 'line_ranges': ranges})}</answer>"
    turns.append(Turn(at, at + 70, text))
    at += 70
    mask = [0] * at
    for turn in turns:
        mask[turn.start : turn.end] = [1] * (turn.end - turn.start)
    gold = ["pkg/f0.py", "pkg/f1.py"][: 1 + number % 2]
    return Rollout(
        f"r{number}", "", "o/n", "c", "policy", [1] * 400, list(range(at)), mask, [-0.5] * at, turns, files, True, gold,
        "answer",
    )  # fmt: skip


def write(folder: Path, count: int) -> None:
    """`count` rollouts in groups, in files of ROWS_PER_PART."""
    folder.mkdir(parents=True)
    dice = random.Random(0)
    for start in range(0, DISTINCT, ROWS_PER_PART):
        write_rollouts(folder, [made(start + n, dice) for n in range(ROWS_PER_PART)])
    parts = sorted(folder.glob("part-*.parquet"))
    tables = [read_columns(part) for part in parts]
    for part in parts:
        part.unlink()
    for number, start in enumerate(range(0, count, ROWS_PER_PART)):
        table = tables[number % len(tables)].slice(0, min(ROWS_PER_PART, count - start))
        rows = range(start, start + table.num_rows)
        named = {
            "rollout_id": pa.array([f"r{row}" for row in rows]),
            "instance_id": pa.array([f"issue-{row // GROUP}" for row in rows]),
            "step": pa.array([row // 512 for row in rows], pa.int32()),
        }
        for name, column in named.items():
            table = table.set_column(SCHEMA.names.index(name), name, column)
        pq.write_table(table.cast(SCHEMA), folder / f"part-{number:020d}-bench.parquet", compression="zstd")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10,000 rollouts: under a minute with making them")
    parser.add_argument("--rollouts", type=int, help="how many (default 100,000)")
    arguments = parser.parse_args()
    count = arguments.rollouts or (10_000 if arguments.quick else 100_000)
    designs = load_designs(SHIPPED)
    with tempfile.TemporaryDirectory(prefix="codegrep-bench-") as scratch:
        folder = Path(scratch, "train-bench", "rollouts")
        write(folder, count)
        reading = spent(lambda: read_stored([folder]))
        wall, cpu = time.perf_counter(), time.process_time()
        done = replay([folder], designs)
        judged = time.perf_counter() - wall
        page = replay_page(done)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert len(done.stored) == count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count:,} rollouts, {len(designs)} designs: {wall:.1f} s ({cpu:.1f} s of one core), page {len(page):,} bytes"
    )
    print(f"reading alone {reading:.1f} s of one core; peak memory {peak:,.0f} MiB")
    result = {
        "rollouts": count,
        "designs": len(designs),
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "rollouts_per_s": round(count / wall, 1),
        "seconds_without_page": round(judged, 2),
        "reading_cpu_seconds": round(reading, 2),
        "peak_mib": round(peak),
    }
    print(json.dumps(result))


def spent(work: object) -> float:
    """Processor seconds of one call."""
    assert callable(work)
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
