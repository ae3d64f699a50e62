"""Search terms come from the issue text alone, most telling first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from codegrep.rollout.terms import search_terms

TRACE = """Crash when saving
```
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/acme/cli.py", line 3, in main
    run()
  File "acme/store/writer.py", line 88, in flush_rows
    raise ValueError("row 17 has no column named 'price'")
ValueError: row 17 has no column named 'price'
```
"""


def texts(statement: str, count: int = 99) -> list[str]:
    return [term.text for term in search_terms(statement)[:count]]


def test_a_traceback_gives_its_innermost_file_and_function_first() -> None:
    found = search_terms(TRACE)
    assert ("writer.py", "path") in {(t.text, t.kind) for t in found}
    first = next(t.text for t in found if t.kind == "identifier")
    assert first == "flush_rows"
    assert found.index(next(t for t in found if t.text == "writer.py")) < found.index(
        next(t for t in found if t.text == "cli.py")
    )


def test_messages_are_cut_to_what_stands_in_the_source() -> None:
    assert "has no column named" in [t.text for t in search_terms(TRACE) if t.kind == "message"]


def test_names_written_as_code_come_before_words() -> None:
    found = texts("Dropdown is empty\nCalling `load_choices()` on a `ChoiceField` gives nothing", 3)
    assert set(found[:2]) == {"load_choices", "ChoiceField"}


def test_what_the_title_says_counts_more() -> None:
    said_below = texts("It breaks\nIt calls build_rows and collapse_all")
    in_title = texts("collapse_all breaks\nIt calls build_rows and collapse_all")
    assert said_below.index("build_rows") < said_below.index("collapse_all")
    assert in_title.index("collapse_all") < in_title.index("build_rows")


def test_names_that_are_everywhere_are_left_out() -> None:
    assert not {"self", "import", "ValueError", "None"} & set(texts("`self` and `None`: import of ValueError fails"))


def test_an_empty_statement_has_no_terms() -> None:
    assert search_terms("") == []


@settings(deadline=None)
@given(st.text(max_size=400))
def test_any_text_gives_distinct_nonempty_terms_in_order(statement: str) -> None:
    found = search_terms(statement)
    assert len({t.text.lower() for t in found}) == len(found)
    assert all(t.text.strip() == t.text and len(t.text) >= 3 for t in found)
    assert [t.weight for t in found] == sorted((t.weight for t in found), reverse=True)
    assert found == search_terms(statement)
