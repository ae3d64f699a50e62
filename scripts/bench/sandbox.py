"""Measures the sandbox: one grep, the cache, leases, concurrent adds, disk, and a whole GRPO step.

    python scripts/bench/sandbox.py --quick
    python scripts/bench/sandbox.py --issues instances.jsonl --repositories clones

Every figure is a ratio of two things measured side by side in this run, or a time. Processor time is that of this
process and of the processes that it started. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from codegrep.issues.source import RepositoryLocation
from codegrep.rollout.terms import search_terms
from codegrep.sandbox import (
    Repositories,
    Sandbox,
    ToolCall,
    ToolStatus,
    Worktrees,
    paper_sandbox,
    paper_tools,
    summary,
)
from codegrep.sandbox.tools import Grep, SearchPrograms
from scripts.bench import sandbox_material as material_of
from scripts.bench.sandbox_material import Material, Turn

TOOLS = paper_tools()
SETTINGS = paper_sandbox(min_free_gib=0.5, max_worktrees=0)
SLOTS_OF_ROLLOUTS = 64


@dataclass(frozen=True)
class Cost:
    """cpu, wall, and of cpu the part outside the kernel: seconds."""

    cpu: float
    wall: float
    user: float


def spent(work: Callable[[], Any]) -> Cost:
    """Measure what a call costs in this process and its children."""
    (user, kernel), began = _cpu(), time.perf_counter()
    work()
    wall = time.perf_counter() - began
    user_after, kernel_after = _cpu()
    return Cost(user_after - user + kernel_after - kernel, wall, user_after - user)


def _cpu() -> tuple[float, float]:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + children.ru_utime, own.ru_stime + children.ru_stime


def say(text: str) -> None:
    """One line of the report."""
    print(text, flush=True)


class Bench:
    """One run of all parts. Results are collected in `result`."""

    def __init__(self, material: Material, work: Path, quick: bool) -> None:
        self.material, self.work, self.quick = material, work, quick
        self.result: dict[str, float] = {}
        self._loop = asyncio.new_event_loop()
        repositories = Repositories(work / "bare", 600, material.locations)
        for repo, location in material.locations.items():
            repositories.ensure(repo, location)
        self.repositories = repositories

    def note(self, name: str, value: float, line: str) -> None:
        """Keep a figure and print its line."""
        self.result[name] = round(value, 4)
        say(f"  {line}")

    def leases(self) -> None:
        """First lease, a lease that borrows, next lease; each beside `git worktree add` of the same commit."""
        say("leases")
        repo, _ = self._largest()
        commits = [commit for name, commit in self.material.commits if name == repo][: 3 if self.quick else 8]
        clone = self.repositories.open(repo)
        # The first commit several times, each time under a new root that has nothing to borrow from; then the others.
        alone = 3 if self.quick else 7
        runs = [(commits[0], f"alone{n}") for n in range(alone - 1)] + [(commit, "leased") for commit in commits]
        plain: list[Cost] = []
        ours: list[Cost] = []
        for number, (commit, root) in enumerate(runs):
            trees = Worktrees(self.work / root, self.repositories)
            place = self.work / "plain" / str(number)
            command = ["git", f"--git-dir={clone.path}", "worktree", "add", "-q", "--detach", str(place), commit]
            both: list[tuple[list[Cost], Callable[[], Any]]] = [
                (plain, partial(subprocess.run, command, check=True)),
                (ours, partial(_leased_once, trees, repo, commit)),
            ]
            # In turns: what the first one writes is still on its way to the disk when the second one writes.
            for costs, work in both if number % 2 else reversed(both):
                costs.append(spent(work))
            if root != "leased":
                trees.close()
        files = sum(1 for p in (self.work / "plain" / "0").rglob("*.py"))
        say(f"  {repo}, {files} Python files")
        first, git = (statistics.median(c.cpu for c in costs[:alone]) for costs in (ours, plain))
        user = statistics.median(c.user for c in ours[:alone]) / statistics.median(c.user for c in plain[:alone])
        spread = [f"{1e3 * min(c.cpu for c in costs[:alone]):.0f}-{1e3 * max(c.cpu for c in costs[:alone]):.0f}"
                  for costs in (ours, plain)]  # fmt: skip
        self.note(
            "first_lease_vs_git_user", user, f"outside the kernel: {user:.2f}x; CPU-ms {spread[0]} and {spread[1]}"
        )
        self.note(
            "first_lease_vs_git_cpu",
            first / git,
            f"first lease {1e3 * first:.0f} CPU-ms, git worktree add {1e3 * git:.0f}: {first / git:.2f}x",
        )
        if len(commits) > 1:
            mean, git = statistics.mean(c.cpu for c in ours[alone:]), statistics.mean(c.cpu for c in plain[alone:])
            self.note(
                "later_lease_vs_git_cpu",
                mean / git,
                f"first lease of further commits {1e3 * mean:.0f} CPU-ms, git {1e3 * git:.0f}: {mean / git:.2f}x",
            )
        again = [spent(lambda: trees.lease(repo, commits[0]).release()).wall for _ in range(100)]
        self.note(
            "next_lease_ms", 1e3 * statistics.median(again), f"next lease {1e3 * statistics.median(again):.2f} ms"
        )
        shutil.rmtree(self.work / "plain")
        subprocess.run(["git", f"--git-dir={clone.path}", "worktree", "prune"], check=True)
        trees.close()

    def greps(self) -> None:
        """One grep beside one ripgrep process, and from the cache."""
        say("one grep (terms of real statements)")
        repo, commit = self._largest()
        trees = Worktrees(self.work / "trees", self.repositories)
        lease = trees.lease(repo, commit)
        statement = " ".join(p.statement for p in self.material.prompts if (p.repo, p.commit) == (repo, commit))
        terms = search_terms(statement)[: 8 if self.quick else 25]
        programs = SearchPrograms()
        tool = Grep(TOOLS, programs)
        costs: dict[str, list[Cost]] = {"rg": [], "ours": []}
        grep_rn = []
        for term in terms:
            pattern = re.escape(term.text)
            command = [*programs.matches(pattern, ["."], ["*.py"], False, TOOLS.max_line_chars)]
            arguments = ["grep", "-rn", "--include=*.py", "-E", "-e", pattern, "."]
            for _ in range(2 if self.quick else 4):
                costs["rg"].append(spent(partial(_process, command, lease.path)))
                costs["ours"].append(spent(partial(self._grep, tool, lease.path, pattern)))
            grep_rn.append(spent(partial(_process, arguments, lease.path)))
        cpu = {name: statistics.mean(c.cpu for c in all_of) for name, all_of in costs.items()}
        wall = {name: statistics.median(c.wall for c in all_of) for name, all_of in costs.items()}
        cpu["grep -rn"] = statistics.mean(c.cpu for c in grep_rn)
        say(f"  {len(terms)} terms on {repo}")
        say("  CPU-ms: " + ", ".join(f"{name} {1e3 * value:.1f}" for name, value in cpu.items()))
        self.note("grep_vs_rg_cpu", cpu["ours"] / cpu["rg"], f"CPU {cpu['ours'] / cpu['rg']:.2f}x of rg")
        self.note("grep_vs_rg_wall", wall["ours"] / wall["rg"], f"wall {wall['ours'] / wall['rg']:.2f}x of rg")
        self.broad(programs, tool, lease.path)
        box = Sandbox.under(self.work, TOOLS, SETTINGS, self.material.locations)
        call = [ToolCall("grep", {"pattern": re.escape(terms[0].text)})]
        self._loop.run_until_complete(box.run_turn(repo, commit, call))
        asked = [spent(lambda: self._loop.run_until_complete(box.run_turn(repo, commit, call))) for _ in range(200)]
        took, cpu_ms = (1e3 * statistics.median(c.wall for c in asked), 1e3 * statistics.mean(c.cpu for c in asked))
        self.result["cached_cpu_ms"] = round(cpu_ms, 4)
        self.note("cached_ms", took, f"a turn of one cached call: {took:.3f} ms, {cpu_ms:.3f} CPU-ms, lease included")
        box.close()
        lease.release()

    def broad(self, programs: SearchPrograms, tool: Grep, root: Path) -> None:
        """Return a pattern that matches ten thousand lines and more."""
        command = programs.matches("import", ["."], ["*.py"], False, TOOLS.max_line_chars)
        runs = 2 if self.quick else 5
        pairs = [
            (spent(lambda: _process(command, root)).cpu, spent(lambda: self._grep(tool, root, "import")).cpu)
            for _ in range(runs)
        ]
        bare, ours = (statistics.mean(p[i] for p in pairs) for i in (0, 1))
        lines = _process(command, root).count(b"\n")
        self.note(
            "broad_grep_vs_rg_cpu", ours / bare, f"a pattern with {lines} matching lines: CPU {ours / bare:.2f}x of rg"
        )

    def without_checkout(self) -> None:
        """Measure the same questions, answered by git from the bare clone."""
        say("without a checkout")
        repo, commit = self._largest()
        clone = self.repositories.open(repo)
        lease = Worktrees(self.work / "trees", self.repositories).lease(repo, commit)
        terms = [re.escape(t.text) for t in search_terms(self.material.prompts[0].statement)[: 4 if self.quick else 12]]
        programs = SearchPrograms()
        git = ["git", f"--git-dir={clone.path}"]
        bare = statistics.mean(
            spent(partial(_process, [*git, "grep", "-n", "-E", "-e", t, commit, "--", "*.py"], clone.path)).cpu
            for t in terms
        )
        tree = statistics.mean(
            spent(partial(_process, programs.matches(t, ["."], ["*.py"], False, 400), lease.path)).cpu for t in terms
        )
        listing = statistics.mean(
            spent(lambda: _process([*git, "ls-tree", "-r", "--name-only", commit], clone.path)).cpu for _ in range(5)
        )
        rg_files = [str(programs.ripgrep), "--files", "--no-ignore", "--glob=*.py", "."]
        files = statistics.mean(spent(lambda: _process(rg_files, lease.path)).cpu for _ in range(5))
        some = next(p.relative_to(lease.path).as_posix() for p in lease.path.rglob("*.py"))
        cat = statistics.mean(
            spent(lambda: _process([*git, "cat-file", "-p", f"{commit}:{some}"], clone.path)).cpu for _ in range(10)
        )
        read = statistics.mean(spent(lambda: (lease.path / some).read_bytes()).cpu for _ in range(10))
        self.note(
            "git_grep_vs_rg_cpu",
            bare / tree,
            f"git grep {1e3 * bare:.0f} CPU-ms, rg on the worktree {1e3 * tree:.0f}: {bare / tree:.1f}x",
        )
        self.note(
            "ls_tree_vs_rg_files_cpu",
            listing / files,
            f"git ls-tree {1e3 * listing:.1f} CPU-ms, rg --files {1e3 * files:.1f}: {listing / files:.1f}x",
        )
        self.note(
            "cat_file_vs_read_ms",
            1e3 * (cat - read),
            f"git cat-file {1e3 * cat:.1f} CPU-ms, reading the file {1e3 * read:.2f}",
        )
        lease.release()

    def adds(self, processes: int = 16) -> None:
        """Worktrees added from many processes at once, with fetches going on."""
        count, seconds = (64, 4) if self.quick else (1000, 30)
        say(f"{count} adds from {processes} processes, with fetches")
        bare = self.work / "many.git"
        files = {f"pkg{i % 4}/mod{i}.py": b"def f%d():\n    return 1\n" % i * 10 for i in range(40)}
        commits = material_of.write_history(bare, files, count)
        root = self.work / "adds"
        Repositories(root / "bare", 600, {"local/many": RepositoryLocation(bare)}).ensure(
            "local/many", RepositoryLocation(bare)
        )
        began = time.perf_counter()
        children = [
            subprocess.Popen(
                [sys.executable, "-c", _ADD, str(root), *commits[n:count:processes]]
                if n < processes
                else [sys.executable, "-c", _FETCH, str(root), str(seconds)],
                stdout=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
            for n in range(processes + 1)
        ]  # fmt: skip
        said = [child.communicate()[0].split() for child in children[:-1]]
        wall = time.perf_counter() - began
        fetches = children[-1].communicate()[0].strip()
        failures = count - sum(int(words[0]) for words in said if words) + sum(c.returncode != 0 for c in children)
        self.note(
            "add_failures",
            failures,
            f"{failures} failures, {fetches} fetches, {wall:.0f} s, {1e3 * wall / count:.0f} ms an add",
        )
        self.result["adds"] = count

    def disk(self) -> None:
        """Disk of many commits of one repository, beside as many checkouts."""
        repo, _ = self._largest()
        wanted = 5 if self.quick else 100
        clone = self.repositories.open(repo)
        first = next(commit for name, commit in self.material.commits if name == repo)
        listed = (
            subprocess.run(
                ["git", f"--git-dir={clone.path}", "rev-list", "--all", "--max-count=20000"],
                capture_output=True,
                check=True,
            )
            .stdout.decode()
            .split()
        )
        commits = [first, *listed[:: max(1, len(listed) // (wanted - 1))]][:wanted] if len(listed) > wanted else listed
        say(f"disk of {len(commits)} commits of {repo}")
        root = self.work / "disk"
        trees = Worktrees(root, self.repositories)
        sizes = []
        for commit in commits:
            with trees.lease(repo, commit) as lease:
                sizes.append(_du(lease.path))
        total = _du(root)
        self.note(
            "disk_vs_checkouts",
            total / sum(sizes),
            f"{_mib(total)} MiB, as separate checkouts {_mib(sum(sizes))} MiB: {total / sum(sizes):.2f}x; "
            f"the clone {_mib(_du(clone.path))} MiB",
        )
        trees.close()

    def step(
        self, steps: Sequence[Sequence[Turn]], locations: dict[str, RepositoryLocation], prefix: str = "step"
    ) -> None:
        """Whole steps through 64 slots, and the paper's way: one grep -rn, find or cat for each call.

        Each step begins with an empty cache; its trees are there. At most 64 rollouts are under way; the turns of a
        rollout come one by one, the calls of a turn together. Of the paper's way a sample is measured, half before and
        half after, since a machine's speed changes with its other work.
        """
        calls = [(turn, call) for turns in steps for turn in turns for call in turn.calls]
        different = sum(material_of.unique_share(turns) * sum(len(t.calls) for t in turns) for turns in steps)
        commits = {(t.repo, t.commit) for turns in steps for t in turns}
        rollouts = sum(len({t.rollout for t in turns}) for turns in steps)
        say(
            f"{prefix}: {len(calls)} calls of {rollouts} rollouts in {len(steps)} step(s), "
            f"{100 * different / len(calls):.0f} % different, {len(commits)} commits"
        )
        box = Sandbox.under(self.work, TOOLS, SETTINGS, locations)
        for repo, commit in sorted(commits):
            self._loop.run_until_complete(box.prepare(repo, commit))
        sample = random.Random(1).sample(calls, min(len(calls), 40 if self.quick else 400))
        half = len(sample) // 2
        plain = self._in_the_papers_way(box, sample[:half])
        before = _resources(self.work)
        statuses: list[ToolStatus] = []
        counted: Counter[str] = Counter()
        cpu, wall, own = 0.0, 0.0, 0.0
        for turns in steps:
            box = Sandbox.under(self.work, TOOLS, SETTINGS, locations)
            began = time.process_time()
            cost = spent(partial(self._loop.run_until_complete, _replay(box, turns, statuses)))
            own += time.process_time() - began
            cpu, wall = cpu + cost.cpu, wall + cost.wall
            counted.update(box.stats())
            box.close()
        after = _resources(self.work)
        plain += self._in_the_papers_way(Sandbox.under(self.work, TOOLS, SETTINGS, locations), sample[half:])
        made = summary(dict(counted))
        each = plain / len(sample)
        speedup = each * len(calls) / cpu
        self.note(
            f"{prefix}_speedup_vs_grep",
            speedup,
            f"{cpu:.1f} CPU-s; the paper's way {each * len(calls):.0f} CPU-s ({len(sample)} calls measured, "
            f"{1e3 * each:.1f} ms each): {speedup:.1f}x less",
        )
        self.note(
            f"{prefix}_own_cpu_share",
            own / cpu,
            f"{own:.1f} CPU-s of it in this process, {cpu - own:.1f} in the processes that it started",
        )
        self.note(
            f"{prefix}_calls_per_second",
            len(calls) / wall,
            f"{len(calls) / wall:.0f} calls/s, {wall:.1f} s",
        )
        self.note(
            f"{prefix}_p99_ms",
            1e3 * made["sandbox/p99"],
            f"p50 {1e3 * made['sandbox/p50']:.2f} ms, p99 {1e3 * made['sandbox/p99']:.0f} ms, waiting included",
        )
        self.note(
            f"{prefix}_cache_hits",
            made["sandbox/cache_hits"],
            f"{100 * made['sandbox/cache_hits']:.0f} % from the cache",
        )
        self.result[f"{prefix}_calls"] = len(calls)
        self.result[f"{prefix}_infrastructure"] = sum(s is ToolStatus.INFRASTRUCTURE for s in statuses)
        grown = {name: after[name] - before[name] for name in after}
        self.note(
            f"{prefix}_leaked",
            grown["descriptors"] + grown["processes"] + grown["leases"],
            f"left behind: {grown['processes']} processes, {grown['descriptors']} descriptors, "
            f"{grown['leases']} leases, {_mib(grown['disk'])} MiB of disk; memory {_mib(after['rss'])} MiB, "
            f"+{_mib(grown['rss'])}",
        )

    def _in_the_papers_way(self, box: Sandbox, calls: Sequence[tuple[Turn, ToolCall]]) -> float:
        """CPU seconds of one process for each call. Closes the sandbox."""
        leases = {at: box.worktrees.lease(*at) for at in {(turn.repo, turn.commit) for turn, _ in calls}}
        cost = spent(lambda: [_process(_papers_way(call), leases[t.repo, t.commit].path) for t, call in calls])
        for lease in leases.values():
            lease.release()
        box.close()
        return cost.cpu

    def _largest(self) -> tuple[str, str]:
        """Return the repository with the most prompts, and its first commit."""
        repos = [p.repo for p in self.material.prompts]
        repo = max(dict.fromkeys(repos), key=repos.count)
        return next((p.repo, p.commit) for p in self.material.prompts if p.repo == repo)

    def _grep(self, tool: Grep, root: Path, pattern: str) -> Any:
        return self._loop.run_until_complete(tool.run(root, tool.check({"pattern": pattern})))


_ADD = """
import sys
from pathlib import Path
from codegrep.sandbox import Repositories, Worktrees
root = Path(sys.argv[1])
trees, done = Worktrees(root / "trees", Repositories(root / "bare", 600)), 0
for commit in sys.argv[2:]:
    try:
        with trees.lease("local/many", commit) as lease:
            done += len(list(lease.path.rglob("*.py"))) == 40
    except Exception as error:
        print(error, file=sys.stderr)
print(done)
"""
_FETCH = """
import sys, time
from pathlib import Path
from codegrep.errors import RepositoryError
from codegrep.sandbox import Repositories
root = Path(sys.argv[1])
repositories, done, end = Repositories(root / "bare", 600), 0, time.monotonic() + float(sys.argv[2])
clone = repositories.open("local/many")
while time.monotonic() < end:
    try:
        repositories.fetch_commit(clone, "1" * 40)
    except RepositoryError:
        done += 1
print(done)
"""


async def _replay(box: Sandbox, turns: Sequence[Turn], statuses: list[ToolStatus]) -> None:
    slots = asyncio.Semaphore(SLOTS_OF_ROLLOUTS)
    rollouts: dict[object, list[Turn]] = {}
    for turn in turns:
        rollouts.setdefault(turn.rollout, []).append(turn)

    async def one(rollout: Sequence[Turn]) -> None:
        async with slots:
            for turn in rollout:
                statuses.extend(r.status for r in await box.run_turn(turn.repo, turn.commit, turn.calls))

    await asyncio.gather(*(one(rollout) for rollout in rollouts.values()))


def _leased_once(trees: Worktrees, repo: str, commit: str) -> None:
    trees.lease(repo, commit).release()


def _process(command: Sequence[str], folder: Path) -> bytes:
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout


def _papers_way(call: ToolCall) -> list[str]:
    if call.name == "grep":
        flags = ["-i"] if call.arguments.get("ignore_case") else []
        include = f"--include={call.arguments.get('include') or '*.py'}"
        return ["grep", "-rn", *flags, include, "-E", "-e", str(call.arguments.get("pattern")), _inside(call)]
    if call.name == "glob":
        return ["find", _inside(call), "-name", str(call.arguments["pattern"]).rpartition("/")[2]]
    return ["cat", _inside(call)]


def _inside(call: ToolCall) -> str:
    """Return the path of a call, as the tools understand it."""
    path = str(call.arguments.get("path") or ".")
    return path.removeprefix("/repo/").lstrip("/") or "."


def _resources(root: Path) -> dict[str, int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    status = Path("/proc/self/status").read_text()
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "processes": len(children),
        "rss": int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024,
        "disk": _du(root / "trees"),
        "leases": len(list((root / "trees" / ".ledger").glob("*/leases/*"))),
    }


def _mib(size: float) -> str:
    return f"{size / 2**20:.0f}"


def _du(folder: Path) -> int:
    done = subprocess.run(["du", "-sk", str(folder)], capture_output=True, check=True)
    return int(done.stdout.split()[0]) * 1024


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller samples, under a minute")
    parser.add_argument("--issues", type=Path, help="JSONL in SWE-bench form")
    parser.add_argument("--repositories", type=Path, help="folder of clones named owner__name(.git)")
    parser.add_argument(
        "--packages",
        nargs="+",
        default=["transformers"],
        help="without --issues: installed packages, or folders of Python files",
    )
    parser.add_argument("--rollouts", type=Path, nargs="+", help="replay the calls of these recorded rollouts")
    parser.add_argument("--prompts", type=int, default=0, help="prompts of the step; default: 64, quick 8")
    parser.add_argument("--only", nargs="+", help="parts: leases greps without_checkout adds disk step")
    options = parser.parse_args()
    if (options.issues is None) != (options.repositories is None):
        parser.error("--issues and --repositories belong together")
    if options.rollouts and options.repositories is None:
        parser.error("--rollouts needs --repositories")
    prompts = options.prompts or (8 if options.quick else 64)
    work = Path(tempfile.mkdtemp(prefix="sandbox-bench-"))
    try:
        if options.issues is not None:
            material = material_of.from_issues(options.issues, options.repositories, prompts)
        else:
            material = material_of.from_packages(options.packages, work, 3 if options.quick else 8, prompts)
        say(f"{material.source}; {len(material.commits)} commits of {len(material.locations)} repositories")
        bench = Bench(material, work, options.quick)
        for part in options.only or ["leases", "greps", "without_checkout", "adds", "disk"]:
            if part != "step":
                getattr(bench, part)()
        if not options.only or "step" in options.only:
            if not options.rollouts or not options.only:
                bench.step([material_of.step_of(material, prompts)], material.locations)
            if options.rollouts:
                found = material_of.recorded(options.rollouts, options.repositories, prompts)
                say(
                    f"recorded steps of {found.groups} prompts; {found.missing} rollouts on other repositories left out"
                )
                bench.step(found.steps, found.locations, "recorded")
        print(json.dumps(bench.result))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
