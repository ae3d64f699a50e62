"""What the sandbox benchmark works on: repositories, statements, and the tool calls of a GRPO step."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

from codegrep.issues.source import RepositoryLocation
from codegrep.protocol.calls import ToolCall
from codegrep.rollout.terms import search_terms

#: The paper's step: 64 prompts x 8 rollouts x 3 turns x 8 calls.
GROUP, TURNS, CALLS = 8, 3, 8
# With this exponent 42 calls of a group of 8 hold 53 % different ones; 26 recorded groups of a warm-started 135M model
# had 54 % (1,130 calls).
_ZIPF = 0.7
_DOCSTRING = re.compile(rb'"""(.{80,1200}?)"""', re.DOTALL)


@dataclass
class Material:
    """Prompts on commits. locations: a clone for each repository. source: what it is, in words."""

    source: str
    locations: dict[str, RepositoryLocation]
    prompts: list[Prompt] = field(default_factory=list)

    @property
    def commits(self) -> list[tuple[str, str]]:
        """The different (repository, commit) pairs, in order."""
        return list(dict.fromkeys((p.repo, p.commit) for p in self.prompts))


@dataclass(frozen=True)
class Prompt:
    """One issue. gold: files that a rollout will read, where they are known."""

    repo: str
    commit: str
    statement: str
    gold: tuple[str, ...] = ()


@dataclass(frozen=True)
class Turn:
    """The calls of one turn of one rollout. rollout: equal for the turns of one rollout, which come one by one."""

    repo: str
    commit: str
    calls: tuple[ToolCall, ...]
    rollout: object = None


@dataclass
class Recorded:
    """Recorded rollouts as steps.

    Attributes:
        steps: of each the turns, in the order of prompts, rollouts and turns.
        groups: of each how many prompts it holds.
        missing: rollouts whose repository was not found.
    """

    locations: dict[str, RepositoryLocation]
    steps: list[list[Turn]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    missing: int = 0


def from_issues(issues: Path, repositories: Path, most: int, seed: int = 0) -> Material:
    """Issues in SWE-bench form whose repository is in the folder as `owner__name` or `owner__name.git`."""
    rows = [json.loads(line) for line in issues.read_text("utf-8").splitlines() if line.strip()]
    found = located({row["repo"] for row in rows}, repositories)
    usable = [row for row in rows if row["repo"] in found]
    random.Random(seed).shuffle(usable)
    prompts = [
        Prompt(row["repo"], row["base_commit"], row["problem_statement"], tuple(_patched(row.get("patch") or "")))
        for row in usable[:most]
    ]
    used = {p.repo for p in prompts}
    return Material(f"{len(prompts)} issues of {issues.name}", {r: at for r, at in found.items() if r in used}, prompts)


def from_packages(packages: Sequence[str], folder: Path, commits: int, prompts: int, seed: int = 0) -> Material:
    """Make a repository of packages or folders; each later commit changes 3 % of the files."""
    bare = folder / "packages.git"
    files = dict(_package_files(packages))
    made = write_history(bare, files, commits, seed)
    rng = random.Random(seed)
    texts = [
        (path, found.group(1).decode("utf-8", "replace"))
        for path in rng.sample(sorted(files), min(len(files), 400))
        for found in _DOCSTRING.finditer(files[path])
    ]
    rng.shuffle(texts)
    rows = [
        Prompt("local/packages", made[i % commits], text, (path,)) for i, (path, text) in enumerate(texts[:prompts])
    ]
    names = ", ".join(Path(package).name for package in packages)
    return Material(f"packages {names} as a repository", {"local/packages": RepositoryLocation(bare)}, rows)


def write_history(bare: Path, files: dict[str, bytes], commits: int, seed: int = 0) -> list[str]:
    """Return a bare repository; the first commit holds `files`, each later one appends a line to 3 % of them."""
    bare.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True)
    rng = random.Random(seed)
    importing = subprocess.Popen(
        ["git", "fast-import", "--quiet"], cwd=bare, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert importing.stdin is not None
    changed = sorted(files)
    current = dict(files)
    for number in range(commits):
        importing.stdin.write(b"commit refs/heads/main\ncommitter A <a@b.c> %d +0000\ndata 1\nx\n" % (10**9 + number))
        for path in changed:
            content = current[path]
            importing.stdin.write(b"M 100644 inline %s\ndata %d\n" % (path.encode(), len(content)))
            importing.stdin.write(content + b"\n")
        changed = sorted(rng.sample(sorted(files), max(1, len(files) * 3 // 100)))
        for path in changed:
            current[path] += b"# revision %d\n" % number
    importing.stdin.close()
    if importing.wait() != 0:
        sys.exit("git fast-import failed")
    listed = subprocess.run(["git", "rev-list", "--reverse", "main"], cwd=bare, check=True, capture_output=True)
    return listed.stdout.decode().split()


def step_of(material: Material, prompts: int, seed: int = 0) -> list[Turn]:
    """Return the turns of a step: what 8 rollouts of each prompt ask, with the repetition that real groups show.

    Seven calls of ten are greps for terms of the statement, two read a file, one is a glob. Terms that look more
    telling are drawn more often (Zipf's law), so the first ones are asked by nearly every rollout.
    """
    rng = random.Random(seed)
    turns = []
    for number in range(prompts):
        prompt = material.prompts[number % len(material.prompts)]
        terms = search_terms(prompt.statement)[:60] or search_terms("configuration default value parser module")
        weights = list(accumulate((rank + 1) ** -_ZIPF for rank in range(len(terms))))
        files = [*prompt.gold, "setup.py", "README.md"]
        for turn in range(GROUP * TURNS):
            calls = []
            for _ in range(CALLS):
                term = rng.choices(terms, cum_weights=weights)[0]
                calls.append(_call(rng, term.text, term.kind == "word", rng.choice(files)))
            turns.append(Turn(prompt.repo, prompt.commit, tuple(calls), (number, turn // TURNS)))
    return turns


def located(repos: set[str], folder: Path) -> dict[str, RepositoryLocation]:
    """Those of the repositories that are in a folder as `owner__name.git` or `owner__name`."""
    found = {}
    for repo in sorted(repos):
        for name in (f"{repo.replace('/', '__')}.git", repo.replace("/", "__")):
            if (folder / name).is_dir():
                found[repo] = RepositoryLocation(folder / name)
                break
    return found


def recorded(folders: Sequence[Path], repositories: Path, prompts: int) -> Recorded:
    """Read recorded rollouts (Parquet, as codegrep.rollout.store writes them) as steps of at most so many prompts.

    Nothing is repeated: a group is what one step of one run recorded for a prompt, a rollout that several stages or a
    resumed run hold counts once, and a prompt that was sampled in several runs is in several steps, so that no step has
    more rollouts of a prompt than were sampled together.
    """
    import pyarrow.parquet

    found = Recorded({})
    seen: set[object] = set()
    groups: dict[tuple[str, ...], list[Turn]] = {}
    for part in sorted((p for folder in folders for p in folder.rglob("*.parquet")), key=lambda p: p.name):
        columns = ["rollout_id", "instance_id", "repo", "base_commit", "step", "turns"]
        for row in pyarrow.parquet.read_table(part, columns=columns).to_pylist():
            if row["rollout_id"] in seen:
                continue
            seen.add(row["rollout_id"])
            if row["repo"] not in found.locations:
                found.locations |= located({row["repo"]}, repositories)
            if row["repo"] not in found.locations:
                found.missing += 1
                continue
            turns = groups.setdefault((row["instance_id"], part.parent.parent.name, str(row["step"])), [])
            for turn in row["turns"]:
                asked = tuple(ToolCall(c["name"], json.loads(c["arguments"])) for c in turn["calls"] if c["name"])
                if asked:
                    turns.append(Turn(row["repo"], row["base_commit"], asked[:CALLS], row["rollout_id"]))
    inside: list[set[str]] = []
    for (prompt, *_), turns in groups.items():
        number = next((n for n, has in enumerate(inside) if prompt not in has and len(has) < prompts), len(inside))
        if number == len(inside):
            inside.append(set())
            found.steps.append([])
        inside[number].add(prompt)
        found.steps[number] += turns
    found.groups = [len(has) for has in inside]
    return found


def _call(rng: random.Random, text: str, is_word: bool, file: str) -> ToolCall:
    kind = rng.random()
    if kind < 0.7:
        return ToolCall("grep", {"pattern": re.escape(text), "ignore_case": is_word})
    if kind < 0.9:
        return ToolCall("read", {"path": file, "start": 1 + 200 * rng.randrange(4)})
    return ToolCall("glob", {"pattern": f"**/*{re.sub(r'[^a-z]', '', text.lower())[:12]}*.py"})


def _patched(patch: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"^--- a/(\S+\.py)$", patch, re.MULTILINE)))


def _package_files(packages: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for package in packages:
        root = Path(package)
        if not root.is_dir():
            spec = find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                sys.exit(f"the package {package} is not installed; name others with --packages")
            root = Path(spec.submodule_search_locations[0])
        for path in sorted(root.rglob("*.py")):
            if path.is_file():
                yield f"{root.name}/{path.relative_to(root).as_posix()}", path.read_bytes()


def unique_share(turns: Sequence[Turn]) -> float:
    """Different calls of a commit by all calls."""
    seen: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    total = 0
    for turn in turns:
        for call in turn.calls:
            seen[turn.repo, turn.commit].add(json.dumps([call.name, dict(call.arguments)], sort_keys=True))
            total += 1
    return sum(map(len, seen.values())) / max(1, total)
