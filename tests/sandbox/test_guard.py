"""The path guard: habits are understood, nothing outside is reached."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegrep.sandbox import Guard, PathRefused
from tests.sandbox.trees import Tree


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("src/app.py", "src/app.py"),
        ("./src/app.py", "src/app.py"),
        (".//src//app.py", "src/app.py"),
        ("/repo/src/app.py", "src/app.py"),
        ("/testbed/src/app.py", "src/app.py"),
        ("/workspace/owner__name__1.0/src/app.py", "src/app.py"),
        ("/workspace/src/app.py", "src/app.py"),
        ("workspace/owner__name__1.0/src/app.py", "src/app.py"),
        ("testbed/src/app.py", "src/app.py"),
        ("/src/app.py", "src/app.py"),
        ("src\\app.py", "src/app.py"),
        (" 'src/app.py' ", "src/app.py"),
        ("src/", "src"),
        ("", "."),
        (".", "."),
        ("./", "."),
        ("/", "."),
        ("/repo", "."),
        ("/repo/", "."),
        ("/workspace/owner__name__1.0", "."),
        ("src/missing.py", "src/missing.py"),
        ("src/./app.py", "src/app.py"),
        ("...", "..."),
    ],
)
def test_habitual_paths(tree: Tree, written: str, meant: str) -> None:
    assert Guard(tree.root).resolve(written) == meant


def test_the_trees_own_absolute_path_and_own_folders_named_like_a_prefix(tree: Tree) -> None:
    tree.write("repo/x.py", b"")
    guard = Guard(tree.root)
    assert guard.resolve(f"{tree.root}/src/app.py") == "src/app.py"
    assert guard.resolve(str(tree.root)) == "."
    assert guard.resolve("repo/x.py") == "repo/x.py"


@pytest.mark.parametrize(
    "written",
    [
        "../outside/secret.py",
        "src/../../outside/secret.py",
        "src/../src/app.py",
        "/repo/../outside/secret.py",
        "/workspace/a__b/../../etc/passwd",
        "/etc/passwd",
        "/repo/etc/../../../etc/passwd",
        "~/x",
        "~root/x",
        "/proc/self/environ",
        "/dev/zero",
        ".git",
        "./.git",
        "/repo/.git",
        ".git/config",
        ".GIT",
        ".Git/x",
        "src/.git",
        ".g\u200cit",
        ".\uff47it",
        ".git ",
        "git~1",
        "a\0b",
        "src/app.py\0.txt",
        "x" * 2000,
        "\ud800",
    ],
)
def test_refused(tree: Tree, written: str) -> None:
    with pytest.raises(PathRefused):
        Guard(tree.root).resolve(written)


def test_links_inside_are_followed_and_links_outside_are_refused(tree: Tree) -> None:
    root = tree.root
    (root / "in").symlink_to("src")
    (root / "in.py").symlink_to("src/app.py")
    (root / "out").symlink_to("../outside")
    (root / "out.py").symlink_to(tree.outside / "secret.py")
    (root / "src" / "up").symlink_to("..")
    (root / "g").symlink_to(".git")
    (root / "chain").symlink_to("out")
    (root / "loop").symlink_to("loop")
    (root / "back").symlink_to("../tree/src")
    guard = Guard(root)
    assert guard.resolve("in/app.py") == "src/app.py"
    assert guard.resolve("in.py") == "src/app.py"
    assert guard.resolve("src/up/src/app.py") == "src/app.py"
    assert guard.resolve("back/app.py") == "src/app.py"
    for path in ("out", "out/secret.py", "out.py", "chain/secret.py", "src/up/out/secret.py", "g", "src/up/.git"):
        with pytest.raises(PathRefused):
            guard.resolve(path)
    assert guard.contains("in/app.py") and guard.contains("src/app.py")
    for path in (
        "out/secret.py",
        "out.py",
        "chain/secret.py",
        ".git",
        "g",
        "../outside/secret.py",
        "src/up/out/secret.py",
    ):
        assert not guard.contains(path), path


def test_a_root_that_is_itself_reached_by_a_link(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree.root)
    guard = Guard(tmp_path / "link")
    assert guard.resolve("src/app.py") == "src/app.py"


PIECES = st.sampled_from(
    ["..", ".", "", "src", "app.py", "out", "out.py", "up", ".git", "repo", "workspace", "a__b", "testbed", "etc",
     "passwd", "~", "*", "tree", "outside", "secret.py", "\\", "\0", "é", "\u202e", " ", "loop", "chain", "\n",
     "g", "…", "．．"]
)  # fmt: skip
PATHS = st.one_of(
    st.lists(PIECES, max_size=8).map("/".join),
    st.lists(PIECES, max_size=8).map(lambda parts: "/" + "/".join(parts)),
    st.lists(PIECES, max_size=6).map("".join),
    st.text(max_size=40),
)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=PATHS)
def test_never_outside(tree: Tree, written: str) -> None:
    root = tree.root
    if not (root / "out").is_symlink():
        (root / "out").symlink_to("../outside")
        (root / "out.py").symlink_to(tree.outside / "secret.py")
        (root / "src" / "up").symlink_to("..")
        (root / "g").symlink_to(".git")
        (root / "chain").symlink_to("out")
        (root / "loop").symlink_to("loop")
    try:
        found = Guard(root).resolve(written)
    except PathRefused as refused:
        assert "\n" not in str(refused) and str(tree.outside) not in str(refused)
        return
    real = os.path.realpath(root / found)
    assert real == str(root) or real.startswith(f"{root}/")
    assert not found.startswith("/") and ".." not in found.split("/") and "\0" not in found
    assert ".git" not in found.split("/")
