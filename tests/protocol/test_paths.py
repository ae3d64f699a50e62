from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.issues.issue import LineRange
from codegrep.protocol.answer import Answer, read_answer
from codegrep.protocol.paths import normalise_path, normalise_paths


@pytest.mark.parametrize(
    ("given_path", "expected"),
    [
        ("a/b.py", "a/b.py"),
        (" ./a//b.py\n", "a/b.py"),
        ("/a/./b.py", "a/b.py"),
        ("././/a.py", "a.py"),
        ("a\\b.py", "a/b.py"),
        ("../a.py", "../a.py"),
        ("/../a.py", "../a.py"),
        ("a/../b.py", "a/../b.py"),
        (".hidden/a.py", ".hidden/a.py"),
        ("...py", "...py"),
        ("a/", "a/"),
        ("a/.", "a/"),
        ("/", ""),
        ("  ", ""),
        (".", ""),
        ("/tree/x/a.py", "a.py"),
        ("/tree/xy/a.py", "tree/xy/a.py"),
        ("A.py", "A.py"),
    ],
)
def test_normalise(given_path: str, expected: str) -> None:
    assert normalise_path(given_path, worktree="/tree/x/") == expected


def test_duplicates_go_and_order_stays() -> None:
    assert normalise_paths(["b.py", "./a.py", "/b.py", "", "a.py"]) == ("b.py", "a.py")


@given(st.text(alphabet="./\\ab", max_size=12))
def test_idempotent_and_never_absolute(path: str) -> None:
    once = normalise_path(path)
    assert normalise_path(once) == once
    assert not once.startswith(("/", "./"))
    # a path that leaves the repository stays one that does
    assert (".." in path.replace("\\", "/").strip().split("/")) == (".." in once.split("/"))


def test_answer_counts_what_it_leaves_out() -> None:
    answer = read_answer(
        {
            "files": ["a.py", 3, None, ""],
            "line_ranges": [
                ["./a.py", 1, 2],
                {"file": "b.py", "start": 3, "end": 3},
                ["a.py", 2, 1],
                ["a.py", True, 2],
                5,
            ],
        }
    )
    assert isinstance(answer, Answer)
    assert answer.files == ("a.py",)
    assert answer.ranges == (LineRange("a.py", 1, 2), LineRange("b.py", 3, 3))
    assert answer.error == "3 of 4 files are no paths; 3 of 5 line ranges are not [file, start, end]"
