"""A tolerant reader of function-call arguments. Whatever is odd is named, so that it can be counted; nothing raises."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

#: Arguments that editors of agents take (OpenHands V0 and V1); others are counted as unknown, and ignored.
EDITOR_KEYS = frozenset(
    "command path view_range file_text old_str new_str insert_line security_risk concise thought summary".split()
)
_LAYERS = 8  # of strings in strings, and of escapes, that are taken off
_LITERAL_LIMIT = 20_000  # characters; Python's own parser needs much memory for long texts
_PAIR = r'"{key}\\*"\s*:\s*\\*"((?:[^"\\\n]|\\[^"])*)'
_FIELDS = {key: re.compile(_PAIR.format(key=key)) for key in ("command", "path", "thought")}


@dataclass(frozen=True)
class Arguments:
    """Arguments of one call.

    Attributes:
        values: by name; {} where nothing could be read.
        oddities: kinds of what was odd, each at most once.
    """

    values: dict[str, Any]
    oddities: tuple[str, ...] = ()

    def text(self, name: str) -> str:
        """Return a value that should be text; "" for anything else."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""


def read_arguments(text: object, known: Collection[str] = EDITOR_KEYS) -> Arguments:
    """Arguments from what a trajectory holds, normally JSON text of an object.

    Args:
        text: JSON text, an object, or anything.
        known: names that are not counted as unknown.
    """
    odd: list[str] = []
    value = _value(text, odd)
    if not isinstance(value, dict):
        odd.append("not an object")
        return Arguments({}, tuple(dict.fromkeys(odd)))
    values: dict[str, Any] = {}
    for key, item in value.items():
        if item is None:
            odd.append("padded with null")
        elif key not in known:
            odd.append("unknown key")
        else:
            values[str(key)] = item
    if "view_range" in values:
        values["view_range"] = _range(values["view_range"], odd)
    return Arguments(values, tuple(dict.fromkeys(odd)))


def _value(text: object, odd: list[str]) -> object:
    if not isinstance(text, str):
        if isinstance(text, dict):
            odd.append("object instead of text")
        return text
    value: object = text
    unescaped = False
    for _ in range(_LAYERS):
        try:
            value = json.loads(value)  # type: ignore[arg-type]
        except (ValueError, RecursionError):
            inner = _unescaped(str(value))
            if inner is None:
                return _mended(str(value), odd)
            value, unescaped = inner, True
        if not isinstance(value, str):
            break
        if not unescaped:
            odd.append("JSON in JSON")
    if unescaped:
        odd.append("over-escaped")
    return value


def _unescaped(text: str) -> str | None:
    """Return the text with one layer of escapes less; None where it has none."""
    if '\\"' not in text:
        return None
    try:
        inner = json.loads(f'"{text}"', strict=False)
    except (ValueError, RecursionError):
        inner = text.replace('\\"', '"').replace("\\\\", "\\")
    return str(inner)


def _mended(text: str, odd: list[str]) -> object:
    """Return the object behind a text that is no JSON: a Python literal, or cut off."""
    if text.lstrip().startswith("{'") and len(text) <= _LITERAL_LIMIT:
        try:
            value = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
        else:
            odd.append("Python literal")
            return value
    odd.append("malformed JSON")
    found = {key: match[1] for key, pattern in _FIELDS.items() if (match := pattern.search(text))}
    return {key: value.replace("\\\\", "\\").replace("\\/", "/") for key, value in found.items()}


def _range(value: object, odd: list[str]) -> object:
    if isinstance(value, str):
        odd.append("text instead of a list")
        value = [part.strip() for part in value.strip("[]() ").split(",")]
    if isinstance(value, list | tuple):
        if any(isinstance(part, str) for part in value):
            odd.append("text instead of a number")
        return [int(part) if re.fullmatch(r"-?\d{1,9}", str(part)) else None for part in value]
    return value
