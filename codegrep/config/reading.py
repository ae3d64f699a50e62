"""From plain values to checked groups, and from pydantic's errors to one line."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from codegrep.config.experiment import Config
from codegrep.errors import ConfigError

T = TypeVar("T")
_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})  # pydantic's names


def checked(kind: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Make a group from plain values.

    Args:
        kind: a group of codegrep.config.
        values: by field, nested.
        prefix: of the keys in errors, with its dot.

    Raises:
        ConfigError: one line with the first key that is wrong, its value and what is allowed.
    """
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        # A mistyped key before the one that is missing because of it.
        first = min(error.errors(), key=lambda one: one["type"] not in _UNKNOWN)
        raise _one_line(first, prefix) from None


def known_keys() -> list[str]:
    """Return every key of the configuration, dotted; names of sources and rails stand as they are typed, `<name>`."""
    return [key for key, _ in walk(Config)]


def walk(kind: type, prefix: str = "") -> Iterator[tuple[str, tuple[type, str]]]:
    """Yield (key, (group, field)) for every field of a group and of the groups in it."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        key = f"{prefix}{field.name}"
        yield key, (kind, field.name)
        inner, named = _group_in(hints[field.name])
        if inner is not None:
            yield from walk(inner, f"{key}.<name>." if named else f"{key}.")


def unknown_key(key: str, choices: Sequence[str] = (), in_files: Collection[str] = ()) -> ConfigError:
    """Say that a key is unknown, and which one is near.

    Args:
        key: as it was typed.
        choices: of the key's group that have it, as they are typed.
        in_files: keys that are no fields but stand in YAML files, such as the parameters of a reward.
    """
    if choices:
        return ConfigError(f"{key} is no key of this choice", f"It belongs to {', '.join(choices)}")
    known = [*known_keys(), *in_files]
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if not near:
        by_last = {name.rpartition(".")[2]: name for name in known}
        near = [by_last[name] for name in difflib.get_close_matches(key.rpartition(".")[2], list(by_last), n=1)]
    return ConfigError(f"unknown key '{key}'", f"Did you mean {near[0]}?" if near else "See --cfg job")


def _group_in(hint: Any) -> tuple[type | None, bool]:
    """Return the group that a field holds, and whether it holds several by name."""
    if is_dataclass(hint) and isinstance(hint, type):
        return hint, False
    for part in get_args(hint):
        if is_dataclass(part) and isinstance(part, type):
            return part, getattr(hint, "__origin__", None) is dict
    return None, False


def _one_line(error: Any, prefix: str) -> ConfigError:
    location, value, what = error["loc"], error["input"], error["msg"]
    key = prefix + ".".join(str(part) for part in location if not isinstance(part, int))
    if error["type"] in _UNKNOWN:
        return unknown_key(key)
    match error["type"]:
        case "missing":
            return ConfigError(f"{key} is not set", f"Give it on the command line: {key}=…")
        case "value_error":
            return ConfigError(f"{key}: {error['ctx']['error']}" if key else str(error["ctx"]["error"]), "")
        case "literal_error":
            holds = "holds" if location and isinstance(location[-1], int) else "is"
            return ConfigError(f"{key} {holds} {value!r}", f"Use {error['ctx']['expected']}")
    return ConfigError(f"{key}={value} {what.replace('Input should be', 'must be')}", "")
