"""How a setting is declared: type, bounds and choices, one line of documentation, the paper's value."""

from __future__ import annotations

from typing import Any, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

T = TypeVar("T")
_CONFIG = ConfigDict(extra="forbid", coerce_numbers_to_str=True, defer_build=True)


def setting(doc: str, *, paper: str = "", **field: Any) -> Any:
    """Declare a field of a group.

    Args:
        doc: what it means, with unit; shown in the reference.
        paper: the value of CodeGrep (arXiv 2608.05886), or of another paper that is named; "" where none is stated.
        field: default, default_factory and bounds (ge, gt, le, lt, min_length), as in pydantic's Field.
    """
    return Field(description=doc, json_schema_extra={"paper": paper}, **field)


@dataclass_transform(field_specifiers=(setting,))
def group(cls: type[T]) -> type[T]:
    """Make a class a checked group of settings: unknown keys, wrong types and values out of bounds are refused."""
    return cast(type[T], dataclass(cls, config=_CONFIG))
