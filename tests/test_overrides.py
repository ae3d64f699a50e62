"""Overrides that the project writes are read back by Hydra as they were."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from codegrep.compose import compose_overrides
from codegrep.errors import ConfigError
from codegrep.overrides import command, override, typed_command

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_SPECIAL = st.text(st.sampled_from("\\'\"${}[](),=: \t\n~+@a1.|"), max_size=12)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT | _SPECIAL
_KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_ .:,=-]{0,8}[a-z_]", fullmatch=True).filter(
    lambda key: key.lower() not in ("null", "true", "false", "inf", "nan")
)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=8
)


def read(text: str) -> Any:
    """What the configuration holds after an override, by Hydra's parser and OmegaConf."""
    parsed = OverridesParser.create().parse_override(text)
    assert not parsed.is_sweep_override(), text
    config = OmegaConf.create({"x": None})
    OmegaConf.update(config, "x", parsed.value(), merge=True, force_add=True)
    return OmegaConf.to_container(config, resolve=True)["x"]


@given(_VALUES)
@example(None)
@example([True, None, 1e-5, "1e-5", "true", "null", ""])
@example("a, b = [c] {d: 'e'} \"f\" $(g) ${h} \\${i} \\")
@example("choice(1,2)")
@example({"a b": {"c": [1, {"d": "x,y"}]}})
def test_every_value_survives(value: Any) -> None:
    text = override("x", value)
    back = read(text)
    assert back == value and repr(back) == repr(value)
    assert shlex.split(command([text]))[3:] == [text]


def test_a_number_that_is_none_survives() -> None:
    assert math.isnan(read(override("x", math.nan)))


def test_the_whole_way_through_hydra() -> None:
    values = [
        None,
        True,
        "a, b",
        "it's",
        'say "x"',
        "[1]",
        "k=v",
        "{a: b}",
        "${seed}",
        1e-5,
        "1e-5",
        " ",
        [1, {"a": "b,c"}],
    ]
    composed = compose_overrides([override("+reward.params.mine", values), override("name", "a=b, c")])
    assert OmegaConf.to_container(composed, resolve=True)["reward"]["params"]["mine"] == values
    assert composed.name == "a=b, c"


@pytest.mark.parametrize("value", ["a\0b", {"it's": 1}, {"1": 1}, {1, 2}, {"": 1}])
def test_what_cannot_be_written_is_said(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^x cannot be set to "):
        override("x", value)


def test_the_command_to_type_works_where_no_environment_is_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make demo` starts .venv/bin/python, which the PATH of the shell need not know."""
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "codegrep"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "codegrep" / "__main__.py")])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert typed_command(["+experiment=v3", "name=a b"]) == ".venv/bin/python -m codegrep +experiment=v3 'name=a b'"
    monkeypatch.setattr(sys, "argv", [str(folder / "codegrep")])
    assert typed_command(["plan"]) == ".venv/bin/codegrep plan"
    monkeypatch.setenv("PATH", str(folder))
    assert typed_command(["plan"]) == "codegrep plan"
    monkeypatch.setattr(sys, "argv", ["-m"])
    assert typed_command(["plan"]) == "python -m codegrep plan"
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir("/")
    assert typed_command(["plan"]) == f"{str(folder / 'python').lstrip('/')} -m codegrep plan"
