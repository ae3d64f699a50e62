"""Completion in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codegrep.completion import main, proposals

ROOT = Path(__file__).parents[1]


def _script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([shell]) == 0
    return capsys.readouterr().out


def _run(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("codegrep sea", ["search"]),
        ("codegrep +experiment=v", ["v1", "v2", "v3"]),  # bash breaks words at "="
        ("codegrep -m reward=swe", ["swe_grep"]),
        ("codegrep train.grpo.grou", ["train.grpo.group_size="]),
    ],
)
def test_bash(typed: str, expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "completion"
    script.write_text(_script("bash", capsys), encoding="utf-8")
    ask = (
        f'source {script}; compopt() {{ :; }}; COMP_LINE="{typed}" COMP_POINT={len(typed)}; '
        '_codegrep; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert _run("bash", "--norc", "-c", ask) == expected


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "completion"
    script.write_text(_script("zsh", capsys), encoding="utf-8")
    ask = f"compdef() {{ echo $2 is completed by $1; }}; source {script}; whence -w _codegrep"
    assert _run("zsh", "-f", "-c", ask) == "codegrep is completed by _codegrep _codegrep: function".split()
    # compadd works inside a completion only: what it is given is what counts.
    shown = f"compdef() {{ : }}; compadd() {{ print -l -- $@ }}; _files() {{ : }}; source {script}; _codegrep"
    words = _run("zsh", "-f", "-c", shown)
    assert {"search", "+experiment=v3", "reward=v1", "train.grpo.steps="} <= set(words)
    assert words.index("train.grpo.steps=") < words.index("--", 3) < words.index("search")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "completion"
    script.write_text(_script("fish", capsys), encoding="utf-8")
    ask = f"source {script}; complete -C 'codegrep +experiment=v'"
    assert {"+experiment=v1", "+experiment=v3"} <= set(_run("fish", "--no-config", "-c", ask))


def test_an_unknown_shell_is_refused_with_those_there_are() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "codegrep", "completion", "tcsh"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "bash" in done.stderr


def test_every_proposal_is_one_word() -> None:
    assert all(len(word.split()) == 1 for word in proposals())
