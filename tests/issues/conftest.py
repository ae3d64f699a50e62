"""Real repositories, made on the spot, and the optional shared data set."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from codegrep.issues.git import git_environment

Write = dict[str, str | bytes | None]


class Builder:
    """A working repository to which commits are added; None as content deletes a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        fields = {"NAME": "T", "EMAIL": "t@invalid", "DATE": "2024-03-01T10:00:00+00:00"}
        person = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in fields.items()}
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments], env=git_environment() | person, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def commit(self, message: str, files: Write) -> str:
        for name, content in files.items():
            path = self.folder / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def build(tmp_path: Path) -> Callable[[str], Builder]:
    return lambda name: Builder(tmp_path / name)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(__file__).resolve().parents[3] / "shared" / "data"
    if not (folder / "instances.jsonl").is_file():
        pytest.skip("the shared data set is not beside the project")
    return folder
