"""Classes and functions of touched lines, against a file whose lines are counted by hand."""

from __future__ import annotations

import pytest

from codegrep.issues.entities import entities_at, gold_entities
from codegrep.issues.issue import Entity, LineRange

SOURCE = """\
import os

@register
class Model(Base):
    field = 1

    @property
    def size(self):
        return 1

    class Meta:
        def go(self):
            pass

def outer():
    def inner():
        return 2
    return inner

LIMIT = 3
"""


def names(*lines: tuple[int, int]) -> set[str]:
    found = entities_at(SOURCE, [LineRange("a.py", start, end) for start, end in lines])
    assert found is not None
    return {f"{entity.kind} {entity.name}" for entity in found}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([(1, 2)], set()),
        ([(3, 3)], {"class Model"}),  # the decorator
        ([(5, 5)], {"class Model"}),
        ([(7, 7)], {"class Model", "function Model.size"}),
        ([(13, 13)], {"class Model.Meta", "function Model.Meta.go"}),
        ([(11, 11)], {"class Model.Meta"}),
        ([(17, 17)], {"function outer.inner"}),
        ([(18, 18)], {"function outer"}),
        ([(9, 16)], {"class Model", "class Model.Meta", "function Model.size", "function Model.Meta.go"}
         | {"function outer", "function outer.inner"}),
        ([(20, 20)], set()),
        ([(500, 900)], set()),
        ([(5, 5), (18, 18)], {"class Model", "function outer"}),
    ],
)  # fmt: skip
def test_innermost_definitions(lines: list[tuple[int, int]], expected: set[str]) -> None:
    assert names(*lines) == expected


@pytest.mark.parametrize("source", ["print 'python 2'", "x = '\0'", "(" * 5000, "def f(:"])
def test_what_cannot_be_parsed_is_not_known(source: str) -> None:
    assert entities_at(source, [LineRange("a.py", 1, 1)]) is None


def test_of_an_issue() -> None:
    files = {"a.py": SOURCE, "b.py": "def f():\n    pass\n", "bad.py": "def f(:"}
    ranges = [LineRange("b.py", 1, 1), LineRange("a.py", 8, 9)]
    assert gold_entities(["a.py", "b.py"], ranges, files.get) == (
        Entity("a.py", "Model", "class"),
        Entity("a.py", "Model.size", "function"),
        Entity("b.py", "f", "function"),
    )
    assert gold_entities(["a.py"], [], files.get) is None  # no gold lines: nothing is known
    assert gold_entities(["a.py", "c.js"], ranges, files.get) is None
    assert gold_entities(["a.py", "bad.py"], [*ranges, LineRange("bad.py", 1, 1)], files.get) is None
    assert gold_entities(["gone.py"], [LineRange("gone.py", 1, 1)], files.get) is None
    assert gold_entities(["a.py"], [LineRange("a.py", 1, 1)], files.get) == ()  # known, and none
