"""Unit costs of the sandbox and of rollout records on this machine, for `python -m codegrep plan --costs FILE`.

    python scripts/bench/unit_costs.py [--quick] [--repository FOLDER] > costs.jsonl

Without a repository one is made of the installed packages' Python files. CPU time is that of this process and of the
programs that it starts, so other work on the machine does not stretch it. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

from codegrep.compose import compose_overrides, load
from codegrep.issues.git import git_environment
from codegrep.issues.source import RepositoryLocation
from codegrep.protocol.calls import ToolCall
from codegrep.rollout.record import CallRecord, Rollout, Turn
from codegrep.rollout.store import write_rollouts
from codegrep.sandbox.sandbox import Sandbox

# A turn as the paper's agents write it: mostly greps, over the whole tree or a part of it, then reads.
WORDS = ("session", "config", "parse", "request", "encode", "matrix", "token", "cache", "render", "resolve", "dtype")
TREE_FILES = 1_500


def main() -> int:
    """Measure, and print the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer turns, below a minute")
    parser.add_argument("--repository", type=Path, help="a clone to measure on")
    arguments = parser.parse_args()
    turns = 12 if arguments.quick else 60
    with TemporaryDirectory(prefix="codegrep-bench-") as folder:
        root = Path(folder)
        repository = arguments.repository or _made(root / "made", TREE_FILES)
        commit = _git(repository, "rev-parse", "HEAD")
        names = [n for n in _git(repository, "ls-tree", "-r", "--name-only", commit).splitlines() if n.endswith(".py")]
        config = load(compose_overrides(["scale=paper", "sandbox.min_free_gib=0.1"]), fill_missing=True)
        locations = {"bench/bench": RepositoryLocation(repository, None)}
        sandbox = Sandbox.under(root / "sandbox", config.tools, config.sandbox, locations)
        costs = asyncio.run(_sandbox(sandbox, commit, names, turns, root / "sandbox"))
    costs["record_token_bytes"] = _record()
    told = {name: f"{value:.3g}" for name, value in costs.items()}
    print(f"{len(names)} Python files, {turns} turns of 8 calls: {told}", file=sys.stderr)
    print(json.dumps({"bench": "unit_costs", "quick": arguments.quick, "files": len(names), "costs": costs}))
    return 0


async def _sandbox(sandbox: Sandbox, commit: str, names: list[str], turns: int, root: Path) -> dict[str, float]:
    before = _cpu()
    await sandbox.prepare("bench/bench", commit)
    tree_cpu = sum(_cpu()) - sum(before)
    files = [path for path in root.joinpath("trees").rglob("*") if path.is_file() and ".git" not in path.parts]
    size = sum(path.stat().st_blocks * 512 for path in files)
    await sandbox.run_turn("bench/bench", commit, _turn(names, -1))  # what is read for the first time is read from disk
    began, before = time.monotonic(), _cpu()
    for number in range(turns):
        await sandbox.run_turn("bench/bench", commit, _turn(names, number))
    own, children = (after - start for after, start in zip(_cpu(), before, strict=True))
    calls = turns * 8
    return {
        "call_cpu": (own + children) / calls,
        "call_own_cpu": own / calls,
        "call_seconds": (time.monotonic() - began) / turns,
        "tree_cpu": tree_cpu / max(1, len(files)),
        "tree_file_bytes": size / max(1, len(files)),
    }


def _turn(names: list[str], number: int) -> list[ToolCall]:
    """Five greps, one glob, two reads; every turn other words, so that nothing is answered from the cache."""
    greps = [
        ToolCall("grep", {"pattern": rf"{WORDS[(number * 5 + k) % len(WORDS)]}\w*{'[_(]' * (k % 2)}.{{{number % 7}}}"})
        for k in range(5)
    ]
    reads = [
        ToolCall("read", {"path": names[(number * 31 + k * 17) % len(names)], "start": 1 + number, "end": 120 + number})
        for k in range(2)
    ]
    return [*greps, ToolCall("glob", {"pattern": f"**/*{WORDS[number % len(WORDS)][:4]}*.py"}), *reads]


def _record() -> float:
    """Bytes on disk of a stored rollout of 8,000 tokens, by its tokens: ids, mask, log-probabilities, texts."""
    prompt, completion = 2_000, 6_000
    text = Path(__file__).read_text(encoding="utf-8")
    heard = [text[n * 200 :][:2_000] for n in range(8)]
    calls = [CallRecord(n, "grep", '{"pattern": "x"}', "ok", said, ["a/b.py"]) for n, said in enumerate(heard)]
    made = [
        Rollout(
            rollout_id=f"r{number}",
            instance_id=f"i{number}",
            repo="o/r",
            base_commit="1" * 40,
            source="policy",
            prompt_ids=[(n * 7919) % 150_000 for n in range(prompt)],
            completion_ids=[(n * n * 31 + number) % 150_000 for n in range(completion)],
            loss_mask=[int(n % 3 == 0) for n in range(completion)],
            logprobs=[-0.001 * ((n * number) % 1000) for n in range(completion)],
            turns=[Turn(n, n + 1, text[:800], calls, text[:4_000]) for n in range(4)],
            answer=["a/b.py"],
            answered=True,
            gold_files=["a/b.py"],
            exit_cause="answer",
        )
        for number in range(16)
    ]
    with TemporaryDirectory() as folder:
        write_rollouts(Path(folder), made)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return size / (len(made) * (prompt + completion))


def _made(folder: Path, count: int) -> Path:
    """Return a repository of `count` files of installed packages."""
    folder.mkdir(parents=True)
    source = Path(sysconfig.get_paths()["purelib"])
    found = (p for p in sorted(source.rglob("*.py")) if 500 < p.stat().st_size < 100_000)
    for path, _ in zip(found, range(count), strict=False):
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    _git(folder, "init", "-q")
    _git(folder, "add", "-A")
    _git(folder, "-c", "user.name=b", "-c", "user.email=b@invalid", "commit", "-q", "-m", "Files")
    return folder


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=git_environment(), check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def _cpu() -> tuple[float, float]:
    """CPU seconds of this process, and of the programs that have ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


if __name__ == "__main__":
    sys.exit(main())
