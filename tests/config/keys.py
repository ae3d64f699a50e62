"""Every field of the configuration, for tests that walk through all of them."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from codegrep.config import Config
from codegrep.config.reading import walk


def numeric_fields() -> list[tuple[str, Any]]:
    """(key, pydantic field) of every setting that is a number, or a number or null."""
    found = []
    for key, (group, name) in walk(Config):
        hint = get_type_hints(group)[name]
        if {int, float} & {hint, *get_args(hint)} and hint is not bool:
            found.append((key, group.__pydantic_fields__[name]))  # type: ignore[attr-defined]
    return found
