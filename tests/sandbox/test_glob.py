"""glob on real files, with ripgrep and without."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.protocol.calls import FileMatches, ToolStatus
from codegrep.sandbox import ArgumentError, Outcome
from codegrep.sandbox.tools import Glob, Grep
from codegrep.sandbox.tools import glob as glob_module
from codegrep.sandbox.tools.pathglob import is_seen
from tests.sandbox.trees import Tree, tool_limits


def glob(tree: Tree, arguments: dict[str, Any], **changed: Any) -> Outcome:
    tool = Glob(tool_limits(**changed))
    return asyncio.run(tool.run(tree.root, tool.check(arguments)))


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
def test_patterns(tree: Tree, arguments: dict[str, Any], paths: list[str]) -> None:
    out = glob(tree, arguments)
    assert out.status is ToolStatus.OK and not out.truncated
    assert out.files == tuple(FileMatches(p, 1) for p in paths)
    assert out.text == ("\n".join(paths) or "[no file matches *.rs]")


def test_caps_are_stated(tree: Tree) -> None:
    for i in range(150):
        tree.write(f"m/{i:03}.py", b"")
    out = glob(tree, {"pattern": "m/*"})
    lines = out.text.split("\n")
    assert lines[0] == "[first 100 of 150 files]" and lines[1:] == [f"m/{i:03}.py" for i in range(100)]
    assert out.truncated and len(out.files) == 100
    out = glob(tree, {"pattern": "m/*"}, max_chars=100)
    assert len(out.text) <= 100 and out.text.startswith(f"[first {len(out.files)} of 150 files]")


@pytest.mark.parametrize(
    "pattern", ["*", "**", "**/*", ".*", ".git", "**/.git*", "out/*", "out/**", "*ecret*", "linked.py"]
)
def test_nothing_outside_and_nothing_of_git(tree: Tree, pattern: str) -> None:
    (tree.root / "out").symlink_to(tree.outside)
    (tree.root / "linked.py").symlink_to(tree.outside / "secret.py")
    os.mkfifo(tree.root / "fifo.py")
    out = glob(tree, {"pattern": pattern})
    assert {f.path for f in out.files} <= {"README.md", "src/app.py", "src/deep/util.py", "tests/test_app.py"}


def test_a_folders_name_and_test_files(tree: Tree) -> None:
    assert glob(tree, {"pattern": "{" + "x," * 200 + "y}"}).text.startswith("[no file matches {x,")
    assert glob(tree, {"pattern": "src"}).text == "[no file matches src; it is a folder: src/** lists its files]"
    out = glob(tree, {"pattern": "*.py"}, exclude_tests=True)
    assert [f.path for f in out.files] == ["src/app.py", "src/deep/util.py"]
    assert "test files left out" in glob(tree, {"pattern": "test_*"}, exclude_tests=True).text


@pytest.mark.parametrize("path", ["nowhere", "src/app.py", "../outside", "/etc", ".git", "out"])
def test_no_such_folder(tree: Tree, path: str) -> None:
    (tree.root / "out").symlink_to(tree.outside)
    out = glob(tree, {"pattern": "*", "path": path})
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


def test_odd_names_are_one_line_each(tree: Tree) -> None:
    tree.write(b"odd/new\nline.py", b"")
    tree.write(b"odd/byte\xff.py", b"")
    tree.write("odd/é.py", b"")
    assert glob(tree, {"pattern": "odd/*"}).text == "odd/byte\\xff.py\nodd/new\\nline.py\nodd/é.py"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("[", "unclosed character class"), ("{a", "unclosed alternate group"), ("a}", "unopened alternate group"),
     ("[z-a]", "invalid range"), ("a\\", "a backslash at the end"), ("{a,b}" * 12, "too many alternatives"),
     ("{a," * 50, "nested too deep")],
)  # fmt: skip
def test_a_bad_glob_is_named(pattern: str, reason: str) -> None:
    for tool, arguments in ((Glob(tool_limits()), {}), (Grep(tool_limits()), {"include": pattern})):
        with pytest.raises(ArgumentError, match=reason):
            tool.check({"pattern": pattern, **arguments})


def test_an_empty_tree(tree: Tree, tmp_path: Any) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    tool = Glob(tool_limits())
    assert asyncio.run(tool.run(empty, tool.check({"pattern": "*"}))).text == "[no file matches *]"


def test_names_that_come_and_go(tree: Tree) -> None:
    tool = Glob(tool_limits())

    def names() -> list[str]:
        return [f.path for f in asyncio.run(tool.run(tree.root, tool.check({"pattern": "*.py"}))).files]

    assert names() == ["src/app.py", "src/deep/util.py", "tests/test_app.py"]
    tree.write("src/deep/new.py", b"")
    assert names() == ["src/app.py", "src/deep/new.py", "src/deep/util.py", "tests/test_app.py"]
    (tree.root / "src/deep/util.py").unlink()
    assert names() == ["src/app.py", "src/deep/new.py", "tests/test_app.py"]
    tree.root.rename(tree.root.parent / "old")
    tree.write("src/app.py", b"")
    assert names() == ["src/app.py"]


def test_a_list_that_could_not_be_made_whole_is_not_kept(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Glob(tool_limits())
    scandir = os.scandir

    def failing(path: str) -> Any:
        if path.endswith("deep/"):
            raise OSError(errno.EMFILE, "no handle left")
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(glob_module.os, "scandir", failing)
        out = asyncio.run(tool.run(tree.root, tool.check({"pattern": "*.py"})))
        assert out.status is ToolStatus.INFRASTRUCTURE and not out.pure and "no handle left" in out.text
    assert len(asyncio.run(tool.run(tree.root, tool.check({"pattern": "*.py"}))).files) == 3


def test_lists_are_kept_up_to_a_number_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glob_module, "_MOST_NAMES", 5)
    tool = Glob(tool_limits())
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        for name in "ab":
            (tmp_path / str(number) / name).write_text("x")
        assert len(asyncio.run(tool.run(tmp_path / str(number), tool.check({"pattern": "*"}))).files) == 2
    assert len(tool._trees) == 2


@given(parts=st.lists(st.text("ab.", min_size=1, max_size=8), min_size=1, max_size=5), stars=st.integers(1, 30))
def test_a_glob_has_no_bad_case(parts: list[str], stars: int) -> None:
    path = "/".join(parts)
    assert is_seen(path, [path]) and is_seen(path, ["**"]) == (not any(part.startswith(".") for part in parts))
    assert not is_seen("a" * 250, ["*a" * stars + "c"])
    assert not is_seen("a/" * 50 + "b", ["**/a/" * stars + "c"])
