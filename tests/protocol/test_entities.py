"""Classes and functions in an answer."""

from __future__ import annotations

from codegrep.issues.issue import Entity
from codegrep.protocol.answer import Answer, read_answer
from codegrep.protocol.parse import parse_message


def entities(*entries: object) -> Answer:
    answer = read_answer({"files": ["a.py"], "entities": list(entries)})
    assert isinstance(answer, Answer)
    return answer


def test_forms() -> None:
    answer = entities("./a.py:Model", "a.py::Model.save", "a.py: run()", "a.py:_Private", "a.py:Model")
    assert answer.entities == (
        Entity("a.py", "Model", "class"),
        Entity("a.py", "Model.save", "function"),
        Entity("a.py", "run", "function"),
        Entity("a.py", "_Private", "class"),
    )
    assert answer.error == ""


def test_what_cannot_be_read_is_left_out_and_named() -> None:
    answer = entities("a.py", "a.py:", ":Model", "a.py:10-20", 3, None, "a.py:run")
    assert answer.entities == (Entity("a.py", "run", "function"),)
    assert answer.error == '6 of 7 entities are not "path:name"'
    answer = read_answer({"files": [], "entities": "a.py:run"})  # type: ignore[assignment]
    assert isinstance(answer, Answer)
    assert answer.error == "entities is not a list"


def test_in_a_message() -> None:
    text = '<answer>{"files": ["a.py"], "entities": ["a.py:Model.save"]}</answer>'
    answer = parse_message(text).answer
    assert answer is not None
    assert answer.entities == (Entity("a.py", "Model.save", "function"),)
    assert parse_message('<answer>{"files": ["a.py"]}</answer>').answer == Answer(("a.py",))
