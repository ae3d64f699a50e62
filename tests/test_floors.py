"""The house stands: a room imports only rooms below it, and no modules import each other in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import codegrep

HOUSE = Path(codegrep.__file__).parent
# From the ground up. A room may import every room of the lines before its own, and no other of its own line.
FLOORS = """
errors text conf_folder
overrides named
config
issues
runtime protocol metrics tracking index
rewards engines
judges sandbox retrievers
rollout
training
compose hydra_settings
pipeline
labels lab compare serve
traces
sweeps
submit
cli
usage
completion ending
app
__main__
"""
LEVEL = {room: level for level, line in enumerate(FLOORS.split("\n")) for room in line.split()}
MODULES = {
    ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in HOUSE.rglob("*.py")
}


@cache
def imported(module: str) -> frozenset[str]:
    """The modules of this project that a module imports anywhere in its text."""
    return frozenset(_imports(ast.parse(MODULES[module].read_text(encoding="utf-8"))))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                member = f"{node.module}.{alias.name}"
                yield from {member if member in MODULES else node.module} & MODULES.keys()
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & MODULES.keys()


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_room_has_a_floor() -> None:
    assert {room(module) for module in MODULES} - {""} == set(LEVEL)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_down_only(module: str) -> None:
    here = room(module)
    above = {
        other
        for other in imported(module)
        if here and room(other) not in ("", here) and LEVEL[room(other)] >= LEVEL[here]
    }
    assert not above


def test_no_modules_import_each_other_in_a_circle() -> None:
    """A package and its own modules count as one where the package only gathers their names."""
    graph = {
        module: {other for other in imported(module) if other != module and not _within(module, other)}
        for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def _within(module: str, other: str) -> bool:
    """A module that asks its own package for a name."""
    return module.startswith(f"{other}.")
