"""Writing what Hydra reads: one override of the command line from a key and a value, and a command for a shell."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegrep.errors import ConfigError


def override(key: str, value: Any) -> str:
    """`key=value` in Hydra's grammar, so that Hydra reads the same value and type back.

    Args:
        key: as on the command line, with `+` where it is new.
        value: None, bool, int, float, str, or lists and mappings of these.

    Raises:
        ConfigError: the grammar has no way to write it.
    """
    try:
        return f"{key}={_written(value)}"
    except ValueError as error:
        raise ConfigError(f"{key} cannot be set to {value!r}: {error}", "Use another value") from None


def command(arguments: Sequence[str]) -> str:
    """`python -m codegrep` with these arguments, to be typed into a shell."""
    return shlex.join(["python", "-m", "codegrep", *arguments])


def typed_command(arguments: Sequence[str]) -> str:
    """Return this program with these arguments, as it can be typed into the shell that started it.

    The environment that it runs in need not be active there: the console script or the interpreter is named by its path
    where the shell would not find it.
    """
    if Path(sys.argv[0]).name == "codegrep":
        return shlex.join([_from_here(sys.argv[0]), *arguments])
    return shlex.join([_from_here(sys.executable), "-m", "codegrep", *arguments])


def outputs_option(outputs: str) -> list[str]:
    """Return the option that commands beside the experiment need for this `outputs`."""
    return [] if outputs == "outputs" else ["--outputs", outputs]


def _from_here(program: str) -> str:
    path = Path(program).absolute()
    if shutil.which(path.name) == str(path):
        return path.name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _written(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key)}:{_written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_written, value)) + "]"
    raise ValueError(f"it holds a {type(value).__name__}")


def _quoted(text: str) -> str:
    """Quote always: a text that looks like a number, null, a list or a function stays a text."""
    from hydra.core.override_parser.types import Quote, QuotedString

    if "\0" in text:
        raise ValueError("a command line cannot hold the character NUL")
    # OmegaConf's own escape: what looks like an interpolation is none.
    literal = re.sub(r"(\\*)\$\{", lambda found: 2 * found.group(1) + r"\${", text)
    return QuotedString(literal, Quote.single).with_quotes()


def _key(key: Any) -> str:
    """Write a key inside {…}, which cannot be quoted."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    text = re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", str(key))
    try:
        parsed: Any = OverridesParser.create().parse_override(f"x={{{text}:0}}").value()
        back = list(parsed)
    except HydraException:
        back = []
    if back != [key] or type(back[0]) is not type(key):
        raise ValueError(f"Hydra cannot read the key {key!r}")
    return text
