"""docs/how-to/sandbox.md does what it says, word for word; the paper's limits are those of conf/."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from codegrep.sandbox import paper_sandbox, paper_tools

ROOT = Path(__file__).parents[2]


def test_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```(python|text)\n(.*?)```", (ROOT / "docs" / "how-to" / "sandbox.md").read_text("utf-8"), re.DOTALL
    )
    program = "\n".join(text for kind, text in blocks if kind == "python")
    shown = "".join(text for kind, text in blocks if kind == "text")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=_environment(tmp_path),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown


def _environment(folder: Path) -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "GIT_CONFIG_GLOBAL": os.devnull}


@pytest.mark.parametrize(
    ("made", "file"), [(paper_tools(), "tools/grep_glob_read.yaml"), (paper_sandbox(), "sandbox/worktrees.yaml")]
)
def test_the_limits_are_those_of_the_configuration(made: object, file: str) -> None:
    written = yaml.safe_load((ROOT / "conf" / file).read_text("utf-8"))
    assert dataclasses.asdict(made) == written  # type: ignore[call-overload]
