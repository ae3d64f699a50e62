"""glob on real files, with ripgrep and without."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.protocol.calls import FileMatches, ToolStatus
from codegrep.sandbox import ArgumentError, Outcome
from codegrep.sandbox.tools import Glob, SearchPrograms, find_ripgrep
from codegrep.sandbox.tools.pathglob import matches_glob
from tests.sandbox.trees import Tree, tool_limits

BOTH = [
    pytest.param(None, id="rg", marks=pytest.mark.skipif(find_ripgrep() is None, reason="ripgrep is not installed")),
    pytest.param("", id="python"),
]


def glob(tree: Tree, ripgrep: str | None, arguments: dict[str, Any], **changed: Any) -> Outcome:
    tool = Glob(tool_limits(**changed), SearchPrograms(ripgrep))
    return asyncio.run(tool.run(tree.root, tool.check(arguments)))


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"pattern": "*.py"}, ["src/app.py", "src/deep/util.py", "tests/test_app.py"]),
        ({"pattern": "**/*.py"}, ["src/app.py", "src/deep/util.py", "tests/test_app.py"]),
        ({"pattern": "src/*.py"}, ["src/app.py"]),
        ({"pattern": "./src/*.py"}, ["src/app.py"]),
        ({"pattern": "/src/*.py"}, ["src/app.py"]),
        ({"pattern": "/repo/src/**/*.py"}, ["src/app.py", "src/deep/util.py"]),
        ({"pattern": "/workspace/o__n__1.0/src/app.py"}, ["src/app.py"]),
        ({"pattern": "src/**"}, ["src/app.py", "src/deep/util.py"]),
        ({"pattern": "**/deep/*"}, ["src/deep/util.py"]),
        ({"pattern": "*.py", "path": "src"}, ["src/app.py", "src/deep/util.py"]),
        ({"pattern": "deep/*.py", "path": "/repo/src"}, ["src/deep/util.py"]),
        ({"pattern": "{app,util}.py"}, ["src/app.py", "src/deep/util.py"]),
        ({"pattern": "[a]pp.p?"}, ["src/app.py"]),
        ({"pattern": "app.py"}, ["src/app.py"]),
        ({"pattern": "/*.md"}, ["README.md"]),
        ({"pattern": "*.rs"}, []),
    ],
)
def test_patterns(tree: Tree, ripgrep: str | None, arguments: dict[str, Any], paths: list[str]) -> None:
    out = glob(tree, ripgrep, arguments)
    assert out.status is ToolStatus.OK and not out.truncated
    assert out.files == tuple(FileMatches(p, 1) for p in paths)
    assert out.text == ("\n".join(paths) or "[no file matches *.rs]")


@pytest.mark.parametrize("ripgrep", BOTH)
def test_caps_are_stated(tree: Tree, ripgrep: str | None) -> None:
    for i in range(150):
        tree.write(f"m/{i:03}.py", b"")
    out = glob(tree, ripgrep, {"pattern": "m/*"})
    lines = out.text.split("\n")
    assert lines[0] == "[first 100 of 150 files]" and lines[1:] == [f"m/{i:03}.py" for i in range(100)]
    assert out.truncated and len(out.files) == 100
    out = glob(tree, ripgrep, {"pattern": "m/*"}, max_chars=100)
    assert len(out.text) <= 100 and out.text.startswith(f"[first {len(out.files)} of 150 files]")


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize(
    "pattern", ["*", "**", "**/*", ".*", ".git", "**/.git*", "out/*", "out/**", "*ecret*", "linked.py"]
)
def test_nothing_outside_and_nothing_of_git(tree: Tree, ripgrep: str | None, pattern: str) -> None:
    (tree.root / "out").symlink_to(tree.outside)
    (tree.root / "linked.py").symlink_to(tree.outside / "secret.py")
    os.mkfifo(tree.root / "fifo.py")
    out = glob(tree, ripgrep, {"pattern": pattern})
    assert {f.path for f in out.files} <= {"README.md", "src/app.py", "src/deep/util.py", "tests/test_app.py"}


@pytest.mark.parametrize("ripgrep", BOTH)
def test_a_folders_name_and_test_files(tree: Tree, ripgrep: str | None) -> None:
    assert glob(tree, ripgrep, {"pattern": "{" + "x," * 200 + "y}"}).text.startswith("[no file matches {x,")
    assert (
        glob(tree, ripgrep, {"pattern": "src"}).text == "[no file matches src; it is a folder: src/** lists its files]"
    )
    out = glob(tree, ripgrep, {"pattern": "*.py"}, exclude_tests=True)
    assert [f.path for f in out.files] == ["src/app.py", "src/deep/util.py"]
    assert "test files left out" in glob(tree, ripgrep, {"pattern": "test_*"}, exclude_tests=True).text


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize("path", ["nowhere", "src/app.py", "../outside", "/etc", ".git", "out"])
def test_no_such_folder(tree: Tree, ripgrep: str | None, path: str) -> None:
    (tree.root / "out").symlink_to(tree.outside)
    out = glob(tree, ripgrep, {"pattern": "*", "path": path})
    assert out.status is ToolStatus.MODEL_ERROR and "secret" not in out.text


@pytest.mark.parametrize(
    "pattern", ["", "/", "!x", "../*", "src/../../*", "~/*", "/etc/*", "/etc/passwd", "a\0", "x" * 1001, "/../*"]
)
def test_refused_patterns(tree: Tree, pattern: str) -> None:
    tool = Glob(tool_limits())
    try:
        arguments = tool.check({"pattern": pattern})
    except ArgumentError:
        return
    out = asyncio.run(tool.run(tree.root, arguments))
    assert out.status is ToolStatus.MODEL_ERROR


@pytest.mark.parametrize("ripgrep", BOTH)
def test_odd_names_are_one_line_each(tree: Tree, ripgrep: str | None) -> None:
    tree.write(b"odd/new\nline.py", b"")
    tree.write(b"odd/byte\xff.py", b"")
    tree.write("odd/é.py", b"")
    assert glob(tree, ripgrep, {"pattern": "odd/*"}).text == "odd/byte\\xff.py\nodd/new\\nline.py\nodd/é.py"


@pytest.mark.skipif(find_ripgrep() is None, reason="ripgrep is not installed")
def test_a_bad_glob_is_named(tree: Tree) -> None:
    out = glob(tree, None, {"pattern": "["})
    assert out.status is ToolStatus.MODEL_ERROR and "unclosed character class" in out.text


def test_an_empty_tree(tree: Tree, tmp_path: Any) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    tool = Glob(tool_limits())
    assert asyncio.run(tool.run(empty, tool.check({"pattern": "*"}))).text == "[no file matches *]"


NAMES = st.text("ab.*?", min_size=1, max_size=5)


@given(parts=st.lists(st.text("ab.", min_size=1, max_size=8), min_size=1, max_size=5), stars=st.integers(1, 30))
def test_the_python_matcher_has_no_bad_case(parts: list[str], stars: int) -> None:
    path = "/".join(parts)
    assert matches_glob(path, "**") and matches_glob(path, path)
    matches_glob("a" * 200, "*a" * stars + "c")
    assert not matches_glob("a/" * 50 + "b", "**/a/" * stars + "c")
