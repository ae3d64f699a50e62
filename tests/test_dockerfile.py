"""The Dockerfile, without Docker: its lines are found and run in order on the committed files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.dockerfile_steps import run_lines

ROOT = Path(__file__).parents[1]


def test_lines_are_joined_and_only_run_lines_count() -> None:
    text = "FROM x\n# RUN nothing\nRUN a && \\\n    b\nCOPY . .\nRUN make test\n"
    assert run_lines(text) == ["a && b", "make test"]


def test_the_image_installs_and_runs_the_tests_and_the_demo() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert run_lines(text)[-2:] == ["make venv", "make test"] and 'CMD ["make", "demo"]' in text


def test_a_line_that_fails_ends_the_steps(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(tmp_path)]
    (tmp_path / "scripts").mkdir()
    script = ROOT / "scripts" / "dockerfile_steps.py"
    (tmp_path / "scripts" / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "Dockerfile").write_text("RUN pwd && ls\nRUN exit 3\nRUN echo never\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "A"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "uncommitted").write_text("", encoding="utf-8")
    command = [sys.executable, str(tmp_path / "scripts" / script.name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3 and "failed with 3: exit 3" in done.stderr
    assert "Dockerfile" in done.stdout and "uncommitted" not in done.stdout and "never" not in done.stdout
    assert str(tmp_path) not in done.stdout.splitlines()[1]  # a folder of its own
