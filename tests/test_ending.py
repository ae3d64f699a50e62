"""How a command ends: one line for people, a trace for mistakes in the code, nothing for a reader that has left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from codegrep.ending import end
from codegrep.errors import DataError

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("error", "composing", "code", "words"),
    [
        (DataError("no rows", "Give some"), False, 2, "codegrep: no rows. Give some\n"),
        (KeyboardInterrupt(), False, 130, ""),
        (ValueError("too many values to unpack"), False, 1, "ValueError: too many values to unpack\n"),
        (ValueError("what was typed"), True, 2, "codegrep: what was typed. See python -m codegrep --help\n"),
    ],
)
def test_what_is_printed_and_the_exit_code(
    error: Exception, composing: bool, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        end(error, composing=composing)
    assert ended.value.code == code
    assert capsys.readouterr().err == words


@pytest.mark.parametrize("arguments", [["--help"], ["search", "--help"], ["+experiment=v3", "--cfg", "job"]])
def test_a_reader_that_has_read_enough_is_no_error(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "codegrep", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
