"""Checks a model's arguments against a tool's JSON schema, with messages that a model can act on."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from codegrep.sandbox.tools.tool import Argument, ArgumentError

#: Longest string argument, characters.
MAX_ARGUMENT_CHARS = 1000


def check_arguments(
    parameters: Mapping[str, Any], defaults: Mapping[str, Argument], arguments: Mapping[str, Any]
) -> dict[str, Argument]:
    """Return the arguments with their types put right and defaults filled in, in the schema's order.

    Tolerated, because the meaning is plain: "12" and 12.0 for an integer, "true" for a boolean, null for a default.

    Raises:
        ArgumentError: unknown, missing, of a wrong type, too long, or text that no file can hold.
    """
    known: Mapping[str, Any] = parameters["properties"]
    for name in arguments:
        if name not in known:
            raise ArgumentError(_unknown(str(name), list(known)))
    checked: dict[str, Argument] = {}
    for name, schema in known.items():
        value = arguments.get(name)
        if value is None:
            if name in parameters.get("required", ()):
                raise ArgumentError(f"argument '{name}' is missing ({schema['description']})")
            checked[name] = defaults.get(name)
        else:
            checked[name] = _typed(name, schema["type"], value)
    return checked


def _typed(name: str, kind: str, value: Any) -> Argument:
    if kind == "string" and isinstance(value, str):
        return _text(name, value)
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
    if kind == "integer" and not isinstance(value, bool):
        if isinstance(value, int):
            return _bounded(name, value)
        if isinstance(value, float) and value.is_integer():
            return _bounded(name, int(value))
        if isinstance(value, str) and _is_integer(value):
            return _bounded(name, int(value))
    article = "an" if kind == "integer" else "a"
    raise ArgumentError(f"argument '{name}' must be {article} {kind}, not {_shown(value)}")


def _text(name: str, value: str) -> str:
    if len(value) > MAX_ARGUMENT_CHARS:
        raise ArgumentError(f"argument '{name}' has {len(value)} characters, at most {MAX_ARGUMENT_CHARS} are allowed")
    if "\0" in value:
        raise ArgumentError(f"argument '{name}' contains a NUL byte")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ArgumentError(f"argument '{name}' is no valid Unicode text") from None
    return value


def _bounded(name: str, value: int) -> int:
    if abs(value) > 10**9:
        raise ArgumentError(f"argument '{name}' is too large")
    return value


def _is_integer(value: str) -> bool:
    text = value.strip()
    return len(text) <= 20 and text.isascii() and text.removeprefix("-").isdigit()


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f", did you mean '{close[0]}'?" if close else ""
    return f"unknown argument {_shown(name)}{hint} (arguments: {', '.join(known)})"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
