"""What the README and docs/ say to type: every run composes and passes the checks, every option of a command exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from codegrep.cli import COMMANDS
from codegrep.compose import compose_overrides, load

ROOT = Path(__file__).parents[1]
_COMMAND = re.compile(r"(?m)^    python -m codegrep ((?:.*\\\n)*.*)$")
# Groups and modules that a reader is told to write; the tests of these how-tos make them.
_TO_BE_WRITTEN = (
    "reward=turn_penalty",
    "reward=first_file",
    "reward.function=my_rewards",
    "turn_scores.function=my_turns",
    "reward=v3,first_file",
    "--config-dir own",
)


def documented() -> list[tuple[str, str]]:
    """(page, arguments) of every command in an indented block; continued lines joined, remarks taken off."""
    found = []
    for page in [ROOT / "README.md", ROOT / "mlflow" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for match in _COMMAND.finditer(page.read_text(encoding="utf-8")):
            line = re.sub(r"\\\n\s*", " ", match.group(1))
            found.append((page.name, re.sub(r"\s+#.*$", "", line).strip()))
    return found


def arguments_of(line: str) -> list[str]:
    """Words; an ellipsis stands for arguments that are given elsewhere."""
    return [word for word in shlex.split(line.replace("$PWD", "/here").replace("--cfg job", "")) if word != "…"]


@cache
def help_of(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "codegrep", command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


RUNS = [(page, line) for page, line in documented() if line.split()[0] not in COMMANDS]
CALLS = [(page, line) for page, line in documented() if line.split()[0] in COMMANDS]


def test_there_is_much_to_check() -> None:
    assert len(RUNS) >= 25 and len(CALLS) >= 25


@pytest.mark.parametrize(("page", "line"), RUNS, ids=lambda text: text[:60])
def test_a_documented_run_composes(page: str, line: str) -> None:
    if any(text in line for text in _TO_BE_WRITTEN):
        pytest.skip("uses a file that the page tells to write")
    _composed(arguments_of(line), whole="…" not in line)


@pytest.mark.parametrize(("page", "line"), CALLS, ids=lambda text: text[:60])
def test_a_documented_command_has_these_options(page: str, line: str) -> None:
    command, *words = arguments_of(line)
    for word in words:
        if word.startswith("-"):
            option = word.partition("=")[0]
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", help_of(command)), f"{page}: {option}"
    if command in ("submit", "plan"):
        flags = {"--follow", "--status", "--stop", "--times", "--costs", "--nodes", "--cores", "--gpus"}
        values = {words[i + 1] for i, word in enumerate(words[:-1]) if word in flags}
        overrides = [word for word in words if not word.startswith("-") and word not in values]
        _composed(overrides, whole="…" not in line, fill_missing=command == "plan")


def _composed(words: list[str], whole: bool, fill_missing: bool = False) -> None:
    overrides = [word for word in words if word != "-m"]
    cfg = compose_overrides(overrides, first_of_many="-m" in words)
    if whole:
        load(cfg, fill_missing=fill_missing)
