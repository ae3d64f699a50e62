"""The documentation is true to the code: the functions that the architecture page names exist, links lead somewhere."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from codegrep.config import Config
from codegrep.config.reading import walk

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_the_way_of_an_issue_names_ten_functions_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    way = page[page.index("## The way of an issue") : page.index("## Rooms")]
    names = re.findall(r"(?m)^\d+\. `([\w.]+)`", way)
    assert len(names) == 10
    for name in names:
        module, attributes = _module_of(name)
        value: object = importlib.import_module(module)
        for attribute in attributes:
            value = getattr(value, attribute)
        assert callable(value), name


def _module_of(name: str) -> tuple[str, list[str]]:
    """The module of a dotted name, and the attributes below it."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (ROOT / Path(*parts[:end])).with_suffix(".py").is_file():
            return ".".join(parts[:end]), parts[end:]
    raise AssertionError(f"{name}: no such module")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = [
        target
        for target in _LINK.findall(text)
        if not target.startswith(("http://", "https://")) and not (page.parent / target).exists()
    ]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_keys_that_a_page_names_exist(page: Path) -> None:
    keys = {key for key, _ in walk(Config)}
    leaves = {key for key in keys if not any(other.startswith(f"{key}.") for other in keys)}
    groups = {key.partition(".")[0] for key in keys - leaves}
    free = ("data.sources.", "sweep.space.")  # names that a user chooses
    named = re.findall(r"`(\w+\.[\w.]+?)(?:[.=][^`\w][^`]*|=[^`]*)?`", page.read_text(encoding="utf-8"))
    unknown = [
        name
        for name in named
        if name.partition(".")[0] in groups
        and not name.startswith(free)
        and not any(
            key == name or key.startswith(f"{name}.") or (key in leaves and name.startswith(f"{key}.")) for key in keys
        )
    ]
    assert unknown == []
