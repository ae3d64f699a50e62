"""Real repositories and trees, made in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codegrep.config import SearchToolConfig, ToolsConfig

ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@dataclass(frozen=True)
class Made:
    """A bare repository and its commits, oldest first. With the attributes of a RepositoryLocation."""

    local: Path
    commits: list[str]
    url: str | None = None


def run_git(*arguments: str, cwd: Path, stdin: bytes = b"") -> str:
    """git, checked."""
    done = subprocess.run(["git", *arguments], cwd=cwd, input=stdin, capture_output=True, env=ENVIRONMENT, check=True)
    return done.stdout.decode()


def make_repository(folder: Path, trees: Sequence[Mapping[str, bytes | str]]) -> Made:
    """A bare repository with one commit a tree. bytes are a file's content, str is a symlink's target."""
    folder.mkdir(parents=True)
    run_git("init", "-q", "--bare", "-b", "main", ".", cwd=folder)
    stream = b""
    for number, tree in enumerate(trees):
        stream += b"commit refs/heads/main\ncommitter A <a@b.c> %d +0000\ndata 1\nx\ndeleteall\n" % (
            1_700_000_000 + number
        )
        for path, content in tree.items():
            data = content if isinstance(content, bytes) else content.encode()
            mode = b"100644" if isinstance(content, bytes) else b"120000"
            quoted = (
                b'"' + os.fsencode(path).replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b'"', b'\\"') + b'"'
            )
            stream += b"M " + mode + b" inline " + quoted + b"\ndata %d\n" % len(data) + data + b"\n"
    run_git("fast-import", "--quiet", cwd=folder, stdin=stream)
    return Made(folder, run_git("rev-list", "--reverse", "main", cwd=folder).split())


@dataclass
class Tree:
    """A folder that stands for a worktree."""

    root: Path
    outside: Path
    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, path: str | bytes, content: bytes) -> None:
        full = self.root / os.fsdecode(path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(content)


@dataclass(frozen=True)
class At:
    """Where a repository is. With the attributes of a RepositoryLocation."""

    local: Path | None = None
    url: str | None = None


def assert_gone(pid: int, seconds: float = 10.0) -> None:
    """A killed process that is not our own child is gone soon, not at once."""
    deadline = time.monotonic() + seconds
    while _is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} lives"
        time.sleep(0.01)


def assert_no_leases(trees: Path, seconds: float = 10.0) -> None:
    """Leases linger for a moment after their release."""
    deadline = time.monotonic() + seconds
    while left := list((trees / ".ledger").glob("*/leases/*")):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def tool_limits(**changed: object) -> ToolsConfig:
    """ToolsConfig with the paper's values, others by keyword."""
    values: dict[str, object] = {
        "names": ["grep", "glob", "read"],
        "max_calls": 8,
        "max_matches": 50,
        "max_paths": 100,
        "max_lines": 200,
        "max_chars": 4096,
        "max_observation_chars": 0,
        "max_line_chars": 200,
        "grep_timeout": 10.0,
        "glob_timeout": 10.0,
        "read_timeout": 5.0,
        "search": SearchToolConfig("hybrid", results=10, max_results=50, timeout=30.0),
        "concurrency": 64,
        "observation": "results",
        "table_rows": 10,
        "table_order": "score",
        "grep_include": "*.py",
        "exclude_tests": False,
    }
    return ToolsConfig(**{**values, **changed})  # type: ignore[arg-type]
