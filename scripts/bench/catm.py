"""Mining of target files: the columnar miner against a row-by-row one and against only reading, and a full-size run.

    python scripts/bench/catm.py --quick
    python scripts/bench/catm.py --trajectories trajectories.jsonl.gz --instances instances.jsonl --work /tmp/catm

Ratios are of CPU time, measured in turns in one process: other work on the machine hits all of them alike. The last
line is one JSON object.

    mining_vs_rowwise       columnar against row-by-row mining, both from the same Arrow batches, reading left out
    with_read_vs_rowwise    the same with reading the Parquet file on both sides
    mining_vs_parquet_read  only reading the columns that mining needs, by reading and mining them
    against_whole_read      only reading all columns, by reading what is needed and mining
    peak_gb                 of the largest run: memory of all its processes together (shared memory counted once)
    full_set_minutes        --full: the stage `label` on a set of the real set's size, judge=rules, two CPUs
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from codegrep.labels.columnar import mine  # noqa: E402
from codegrep.labels.importing import imported  # noqa: E402
from codegrep.labels.requests import ReadRules  # noqa: E402
from codegrep.labels.shard_work import MiningSettings, judge_table, mine_shard  # noqa: E402
from codegrep.labels.shards import batches, shards_of  # noqa: E402
from codegrep.runtime.artifacts import file_content  # noqa: E402
from scripts.bench.catm_material import instances, made_up, replayed  # noqa: E402
from scripts.bench.catm_rowwise import mine_rows  # noqa: E402

FULL = 67_074


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ratios on a small set only, below a minute")
    parser.add_argument("--trajectories", nargs="*", default=[], help="real trajectories to replay; default: made up")
    parser.add_argument("--instances", nargs="*", default=[], help="SWE-bench-like files with their gold patches")
    parser.add_argument("--work", help="folder for the sets; they are kept there and used again (about 3 GB)")
    parser.add_argument("--rows", type=int, default=FULL, help="trajectories of the full set")
    parser.add_argument("--steps", nargs="*", type=int, default=[1000, 8000], help="sizes before it")
    parser.add_argument("--tokenizer", default="words", help="words, or a folder with tokenizer.json")
    parser.add_argument("--only", choices=["material", "ratios", "steps", "full"], help="one part, for a busy machine")
    given = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with tempfile.TemporaryDirectory(prefix="catm-") as scratch:
        work = Path(given.work or scratch)
        work.mkdir(parents=True, exist_ok=True)
        table = _material(given.trajectories, work, 200 if given.quick else 472)
        result: dict[str, Any] = {"trajectories": "real, replayed" if given.trajectories else "made up"}
        if not given.quick and given.only in (None, "material"):
            for rows in (*given.steps, given.rows):
                _set(table, rows, work)
        if given.only in (None, "ratios"):
            result |= ratios(table, work, rounds=5)
        if not given.quick and given.only in (None, "steps", "full"):
            result |= pipeline(table, work, given)
        result.setdefault("peak_gb", round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2))
        result["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(result))


def _material(trajectories: Sequence[str], work: Path, count: int) -> pa.Table:
    if not trajectories:
        return made_up(count)
    tables = []
    for name in trajectories:
        path, _ = imported(Path(name), file_content(Path(name)), work / "imported", "auto", lambda _: None)
        tables.append(parquet.read_table(path, use_threads=False))
    return pa.concat_tables(tables).combine_chunks()


def _set(table: pa.Table, rows: int, work: Path) -> Path:
    path = work / f"set-{rows}.parquet"
    if not path.is_file():
        print(f"writing {rows} trajectories …", file=sys.stderr)
        replayed(table, rows, path)
    return path


def ratios(table: pa.Table, work: Path, rounds: int) -> dict[str, Any]:
    """Measure the ratios in the module's list, each the best of some rounds taken in turns."""
    path = work / "ratios.parquet"
    replayed(table, table.num_rows, path)
    shard = shards_of(path, 0)[0]
    rules = ReadRules()

    def read() -> list[pa.RecordBatch]:
        return list(batches(shard))

    def read_all() -> None:
        with parquet.ParquetFile(path) as file:
            for _ in batches(shard, [file.schema.column(n).path for n in range(len(file.schema))]):
                pass

    held = read()
    columnar = [mine(batch.column("trajectory"), rules) for batch in held]
    rowwise = [mine_rows(batch.column("trajectory").to_pylist(), rules) for batch in held]
    assert [m.reads for m in columnar] == [m.reads for m in rowwise], "the two miners differ"
    assert [m.counts() for m in columnar] == [m.counts() for m in rowwise], "the two miners differ"
    settings = MiningSettings(rules=rules)
    from codegrep.judges.files_rules import RulesJudge
    from codegrep.labels.tokens import WordCounter

    def whole() -> None:
        made, record = mine_shard(shard, settings, WordCounter(), with_tasks=False)
        judge_table(made, record, RulesJudge(), settings.min_tokens)

    work_of: dict[str, Callable[[], object]] = {
        "read": read,
        "read_all": read_all,
        "mine": lambda: [mine(batch.column("trajectory"), rules) for batch in held],
        "rows": lambda: [mine_rows(batch.column("trajectory").to_pylist(), rules) for batch in held],
        "whole": whole,
    }
    best = dict.fromkeys(work_of, float("inf"))
    for _ in range(rounds):
        for name, work_item in work_of.items():
            started = time.process_time()
            work_item()
            best[name] = min(best[name], time.process_time() - started)
    gigabytes = shard.text_bytes / 2**30
    return {
        "rows": shard.rows,
        "text_gb": round(gigabytes, 3),
        "reads": sum(len(m.reads) for m in columnar),
        "mining_vs_rowwise": round(best["rows"] / best["mine"], 2),
        "with_read_vs_rowwise": round((best["read"] + best["rows"]) / (best["read"] + best["mine"]), 2),
        "mining_vs_parquet_read": round(best["read"] / (best["read"] + best["mine"]), 3),
        "against_whole_read": round(best["read_all"] / (best["read"] + best["mine"]), 3),
        "mining_gb_per_cpu_second": round(gigabytes / (best["read"] + best["mine"]), 2),
        "with_tokens_and_judge_gb_per_cpu_second": round(gigabytes / best["whole"], 2),
    }


def pipeline(table: pa.Table, work: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Measure the stage `label` as a command, on growing sets and on one and two CPUs."""
    gold = list(given.instances)
    if not gold:
        made = work / "instances.jsonl"
        made.write_text("\n".join(instances(table)), encoding="utf-8")
        gold = [str(made)]
    runs = []
    if given.only != "full":
        runs += [(rows, 2) for rows in given.steps]
        runs.append((given.steps[-1], 1))
    if given.only != "steps":
        runs.append((given.rows, 2))
    out: dict[str, Any] = {"runs": []}
    for rows, cpus in runs:
        path = _set(table, rows, work)
        size = sum(shard.text_bytes for shard in shards_of(path, 0)) / 2**30
        outputs = work / f"out-{rows}-{cpus}"
        seconds, cpu_seconds, peak, samples = _run(path, gold, outputs, cpus, given.tokenizer)
        mining = _seconds_of("trajectories", outputs.with_suffix(".log"))
        run = {
            "rows": rows,
            "cpus": cpus,
            "text_gb": round(size, 2),
            "seconds": round(seconds, 1),
            "mining_seconds": mining,  # reading, mining, counting tokens, judging; the start of Ray left out
            "mining_gb_per_second": round(size / mining, 3) if mining else None,
            "cpu_seconds": round(cpu_seconds, 1),
            "gb_per_second": round(size / seconds, 3),
            "peak_gb": round(peak, 2),
            "samples": samples,
        }
        print(json.dumps(run), file=sys.stderr)
        out["runs"].append(run)
        out["peak_gb"] = run["peak_gb"]
        if rows == given.rows:
            out["full_set_minutes"] = round(seconds / 60, 2)
    return out


def _run(path: Path, gold: Sequence[str], outputs: Path, cpus: int, tokenizer: str) -> tuple[float, float, float, int]:
    """Wall seconds, CPU seconds, peak of memory in GiB, samples."""
    shutil.rmtree(outputs, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "codegrep",
        "label",
        str(path),
        "--outputs",
        str(outputs),
        "--tokenizer",
        tokenizer,
    ]
    for name in gold:
        command += ["--instances", name]
    command += [
        "data.split.held_out=[]",
        "data.split.enforce_roles=false",
        f"cluster.num_cpus={cpus}",
        "cluster.object_store_gib=0.3",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CODEGREP_BENCH": str(outputs)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    with outputs.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log)
    peak = [0.0]
    cpu: dict[int, float] = {}

    def watch() -> None:
        while process.poll() is None:
            peak[0] = max(peak[0], _memory(str(outputs), cpu))
            time.sleep(1.0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    watcher.join()
    if code:
        raise SystemExit(f"the run ended with {code}: {' '.join(command)}")
    seconds = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cpu.pop(process.pid, None)
    (artifact,) = (outputs / "artifacts").glob("label-*")
    summary = json.loads((artifact / "summary.json").read_text(encoding="utf-8"))
    return seconds, own + sum(cpu.values()), peak[0], int(summary["samples"])


def _seconds_of(label: str, log: Path) -> int | None:
    """Return what the command itself says that a part took."""
    found = re.findall(rf"{label}: (\d+) of \1 \((\d+) s\)", log.read_text(encoding="utf-8"))
    return int(found[-1][1]) if found else None


def _memory(mark: str, cpu: dict[int, float]) -> float:
    """GiB of all processes of a run, shared pages divided among those that share them; notes their CPU seconds."""
    total = 0
    wanted = f"CODEGREP_BENCH={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            for line in (entry / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            cpu[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            continue  # it has just ended
    return total / 2**20


if __name__ == "__main__":
    main()
