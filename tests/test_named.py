"""Classes that the configuration names, and their arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegrep.errors import ConfigError
from codegrep.named import make_named, named_class


class Counter:
    def __init__(self, start: int, words: list[str] | None = None, folder: Path | None = None) -> None:
        if start < 0:
            raise ValueError("start is negative")
        self.start, self.words, self.folder = start, words, folder

    def count(self) -> int:
        return self.start


def test_a_class_is_made_with_its_arguments_and_what_is_offered() -> None:
    kind = named_class(f"{__name__}.Counter", "it.kind", "count", "counter")
    made = make_named(kind, {"start": 2, "words": ["a"]}, "it.args", {"folder": Path("x"), "other": 1})
    assert (made.start, made.words, made.folder) == (2, ["a"], Path("x"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.Counter", "it.kind 'nowhere.Counter' cannot be found"),
        ("pathlib.Nothing", "it.kind 'pathlib.Nothing' cannot be found"),
        ("", "it.kind '' cannot be found"),
        ("pathlib.Path", "it.kind 'pathlib.Path' is no counter"),
        ("os.getcwd", "it.kind 'os.getcwd' is no counter"),
        ("broken_for_test.Counter", "it.kind: the module of 'broken_for_test.Counter' fails: ZeroDivisionError"),
    ],
)
def test_a_wrong_name_is_one_line(name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_for_test.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        named_class(name, "it.kind", "count", "counter")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"start": 1, "wrods": []}, "it.args.wrods is not known to Counter. Known: start, words"),
        ({"start": 1, "folder": "y"}, "it.args.folder is not known to Counter"),
        ({"start": "???"}, "it.args.start is not set"),
        ({}, "it.args: missing a required argument: 'start'"),
        ({"start": "one"}, "it.args.start is 'one'. Expected int"),
        ({"start": 1, "words": "ab"}, "it.args.words is 'ab'"),
        ({"start": -1}, "it.args: start is negative"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_named(Counter, arguments, "it.args", {"folder": Path("x")})
    assert said in str(caught.value)
