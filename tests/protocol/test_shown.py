"""What counts as found is what the model was shown, after all caps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.protocol.calls import FileMatches, ToolCall, ToolResult, ToolStatus
from codegrep.protocol.observation import render
from codegrep.protocol.shown import ShownFile, shown_files
from tests.protocol.test_observation import TABLE, TOOLS


def grep(number: int, *places: tuple[str, int], shown: int | None = None) -> ToolResult:
    """A grep that matched one line in each place, of which its text shows the first `shown`."""
    text = "\n".join(f"{path}:{line}:def f():" for path, line in places[:shown])
    if shown is not None:
        text = f"[first {shown} of {len(places)} matching lines in {len(places)} files]\n{text}"
    files = tuple(FileMatches(path, 1, line, "def f():") for path, line in places)
    return ToolResult(number, ToolCall("grep", {"pattern": "f"}), ToolStatus.OK, text, files)


def glob(number: int, *paths: str) -> ToolResult:
    files = tuple(FileMatches(path, 1) for path in paths)
    return ToolResult(number, ToolCall("glob", {"pattern": "*"}), ToolStatus.OK, "\n".join(paths), files)


def read(number: int, path: str, start: int, *lines: str) -> ToolResult:
    end = start + len(lines) - 1
    body = "\n".join(f"{n}\t{line}" for n, line in enumerate(lines, start))
    text = f"[{path}, lines {start}-{end} of 90]\n{body}"
    return ToolResult(
        number, ToolCall("read", {"path": path}), ToolStatus.OK, text, (FileMatches(path, end, start, "x"),)
    )


def test_only_the_lines_of_the_text_count() -> None:
    observation = render([grep(1, ("a.py", 3), ("b.py", 4), ("gold.py", 5), shown=2)], TOOLS)
    assert observation.files == (ShownFile("a.py", (3,)), ShownFile("b.py", (4,)))
    assert observation.calls == (observation.files,)


def test_only_the_rows_of_the_table_count_and_each_for_its_calls() -> None:
    results = [
        grep(1, ("a.py", 1), ("b.py", 2), ("c.py", 3), ("d.py", 4)),
        grep(2, ("b.py", 9)),
        glob(3, "pkg/e.py"),
    ]
    observation = render(results, replace(TABLE, table_rows=2))
    assert observation.text.split("\n") == [
        "[3] glob: pkg/e.py",
        "b.py:9 1:1 2:1 def f():",
        "a.py:1 1:1 def f():",
        "(2 more files)",
    ]
    assert [file.path for file in observation.files] == ["pkg/e.py", "b.py", "a.py"]
    assert [[file.path for file in call] for call in observation.calls] == [["b.py", "a.py"], ["b.py"], ["pkg/e.py"]]


def test_a_read_shows_the_numbers_that_its_text_keeps() -> None:
    observation = render([read(1, "a.py", 10, *["x" * 60] * 8)], replace(TOOLS, max_observation_chars=300))
    (file,) = observation.files
    assert file.path == "a.py" and file.lines[0] == 10
    assert len(file.lines) < 8 and f"{file.lines[-1]}\t" in observation.text


@pytest.mark.parametrize(
    ("text", "whole", "paths", "shown"),
    [
        ("src/data.py:3: import a.py", None, ["a.py", "src/data.py"], [ShownFile("src/data.py", (3,))]),
        ("[no matching lines in a.py]", None, [], []),
        ("[first 2 of 9 files]\na.py", None, ["first", "a.py"], [ShownFile("a.py")]),
        # A path that a cut shortened to another file's name was not shown.
        ("src/a.py", "src/a.pyx:3:x", ["src/a.py", "src/a.pyx"], []),
        # The path is whole, the number of the line is not.
        ("src/a.py:1", "src/a.py:12:x", ["src/a.py"], [ShownFile("src/a.py")]),
        ("my file.py:7:x", None, ["my", "my file.py"], [ShownFile("my file.py", (7,))]),
        ("[a.py is empty]", None, ["a.py"], [ShownFile("a.py")]),
        ("[a.py, lines 2-3 of 9]\n2\tb.py:1:x\n3\ty", None, ["a.py", "b.py"], [ShownFile("a.py", (2, 3))]),
        ("a.py:7-12: def f()\na.py:30-31: x", None, ["a.py"], [ShownFile("a.py", (7, 30))]),
        ("no paths here", None, ["a.py"], []),
    ],
)
def test_a_line_shows_the_path_that_it_begins_with(
    text: str, whole: str | None, paths: list[str], shown: list[ShownFile]
) -> None:
    assert list(shown_files(text, paths, whole)) == shown


paths = st.text("ab./_- 1:", min_size=1, max_size=60).filter(lambda path: path.strip() == path)
places = st.lists(st.tuples(paths, st.integers(1, 9999)), max_size=30, unique_by=lambda place: place[0])
searches = st.one_of(
    st.builds(lambda p, n: grep(1, *p, shown=min(n, len(p))), places, st.integers(0, 30)),
    st.builds(lambda p: glob(1, *(path for path, _ in p)), places),
    st.builds(lambda p, n, lines: read(1, p, n, *lines), paths, st.integers(1, 999), st.lists(st.text(), max_size=9)),
)


@given(
    st.lists(searches, max_size=8).map(lambda found: [replace(r, number=n) for n, r in enumerate(found, 1)]),
    st.sampled_from(["results", "table"]),
    st.sampled_from(["score", "path", "shuffled"]),
    st.integers(1, 12),
    st.one_of(st.just(0), st.integers(600, 4000)),
)
def test_what_counts_as_shown_stands_in_the_text(
    found: list[ToolResult], style: str, order: str, rows: int, cap: int
) -> None:
    tools = replace(TOOLS, observation=style, table_order=order, table_rows=rows, max_observation_chars=cap)
    observation = render(found, tools, key="k")
    assert {file.path for call in observation.calls for file in call} == {file.path for file in observation.files}
    matched = {match.path for result in found for match in result.files}
    for file in observation.files:
        assert file.path in observation.text and file.path in matched
        assert all(str(line) in observation.text for line in file.lines)
