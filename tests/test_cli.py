"""Commands beside the experiment."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import yaml

from codegrep import __main__ as entry
from codegrep import __version__, cli
from codegrep.cli import COMMANDS, Command
from codegrep.errors import ConfigError


def answer(argv: list[str]) -> int:
    if argv == ["bad"]:
        raise ConfigError("this is wrong", "Do that")
    return len(argv)


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "count", Command(f"{__name__}:answer", "counts"))
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or importlib.import_module(__name__))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_there_and_helps(name: str) -> None:
    module, _, function = COMMANDS[name].function.partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    done = subprocess.run(
        [sys.executable, "-m", "codegrep", name, "--help"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert name in done.stdout


def test_a_command_gets_its_arguments_and_gives_the_exit_code(one: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["codegrep", "count", "a", "b"])
    monkeypatch.setattr(cli, "run", lambda command, argv: answer(argv))
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code == 2


def test_its_errors_are_one_line(
    one: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["codegrep", "count", "bad"])
    monkeypatch.setattr(cli, "run", lambda command, argv: answer(argv))
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == "codegrep: this is wrong. Do that\n"


def test_a_near_miss_is_named(one: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["codegrep", "cuont"])
    with pytest.raises(SystemExit):
        entry.main()
    assert "Did you mean count?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("v3", "there is no command 'v3'. Did you mean +experiment=v3?"),
        ("comparee", "Did you mean compare?"),
        ("zzz", "See python -m codegrep --help"),
    ],
)
def test_a_bare_word_that_is_no_command_is_answered(
    word: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["codegrep", word])
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code == 2
    assert answer in capsys.readouterr().err


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["codegrep", "--version"])
    entry.main()
    assert capsys.readouterr().out == f"codegrep {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--cfg", "job", "+experiment=v3", "seed=1"],
        ["+experiment=v3", "--cfg", "job", "seed=1"],
        ["+experiment=v3", "seed=1", "--cfg", "job"],
    ],
)
def test_options_of_hydra_stand_anywhere(words: list[str]) -> None:
    assert entry.options_first(words) == ["--cfg", "job", "+experiment=v3", "seed=1"]


def test_an_error_of_yaml_in_a_command_is_one_line(
    one: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(command: Command, argv: list[str]) -> int:
        return int(yaml.safe_load("a: [1"))

    monkeypatch.setattr(sys, "argv", ["codegrep", "count"])
    monkeypatch.setattr(cli, "run", broken)
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
