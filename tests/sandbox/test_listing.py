"""Globs that are answered from a list of the tree's files find what ripgrep finds."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegrep.sandbox import ArgumentError, Outcome
from codegrep.sandbox.tools import Glob, SearchPrograms, find_ripgrep
from codegrep.sandbox.tools import listing as listing_module
from codegrep.sandbox.tools.listing import plain_glob
from tests.sandbox.trees import tool_limits

pytestmark = pytest.mark.skipif(find_ripgrep() is None, reason="ripgrep is not installed")

FILES = [
    "setup.py", "a.py", "src/a.py", "src/pkg/a.py", "src/pkg/b.pyi", "src/pkg/sub/a.py", "src/pkg/sub/deep/x.py",
    ".a.py", ".hidden/a.py", ".py/a.py", "src/.a.py", "src/.hidden/a.py", "src/.odd.py/a.py", "src/.odd.py/.a.py",
    "a/b/a/b/a.py", "a.py.orig", "aXpy", "src/A.py", "-a.py", "src/a b.py", "src/new\nline.py", "src/größe.py",
    "src/pkg/.git", "vendor/.git/a.py", "docs/index.md", "a.d/a.py", "src/a-b.c_d.py", "..a.py", "x/...py",
]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listing") / "tree"
    for path in FILES:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")
    (folder / os.fsdecode(b"src/caf\xe9.py")).write_text("x")
    (folder / "link.py").symlink_to("a.py")
    (folder / "src/outside").symlink_to("/usr")
    (folder / "elsewhere").symlink_to("src")
    os.mkfifo(folder / "src/pipe.py")
    return folder


class Counting(SearchPrograms):
    started = 0

    def files(self, pattern: str) -> list[str]:
        self.started += 1
        return super().files(pattern)


class Unlisted(listing_module.Listing):
    def names(self, root: Path, folder: str, glob: str) -> None:
        return None


def asked(tool: Glob, root: Path, **arguments: Any) -> Outcome:
    return asyncio.run(tool.run(root, tool.check(arguments)))


def tools(root: Path) -> tuple[Glob, Glob, Counting]:
    programs = Counting()
    plain = Glob(tool_limits(), SearchPrograms())
    plain._listing = Unlisted()
    return plain, Glob(tool_limits(), programs), programs


PATTERNS = [
    "a.py", "*.py", "**/a.py", "src/*.py", "src/**/*.py", "**/pkg/*.py", "**/pkg/**/a.py", "a/**/b/a.py",
    "**/b/**/a.py", ".a.py", "**/.a.py", ".*", ".*/a.py", "src/.*/a.py", "**/.hidden/a.py", "*.*", "*", "src",
    "src/pkg", "A.py", "-a.py", "..a.py", "**/...py", "*-*.py", "**/*.odd.py/*", "a.p", "nowhere.py",
    "**/src/**/*", ".git", "**/.git", "link.py",
]  # fmt: skip


@pytest.mark.parametrize("path", [".", "src", "src/pkg", ".hidden", "src/.odd.py", "elsewhere"])
def test_written_globs(root: Path, path: str) -> None:
    plain, listing, programs = tools(root)
    for pattern in PATTERNS:
        assert plain_glob(pattern) is not None, pattern
        assert asked(listing, root, pattern=pattern, path=path) == asked(plain, root, pattern=pattern, path=path), (
            pattern
        )
    assert programs.started == 0


PARTS = st.sampled_from(
    ["**", "*", "a", ".", "py", ".py", "src", "pkg", "a.py", "b", "/", "/", "-", "hidden", "_", ".a"]
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PARTS, min_size=1, max_size=6).map("".join))
def test_any_glob(root: Path, pattern: str) -> None:
    plain, listing, _ = tools(root)
    try:
        listing.check({"pattern": pattern})
    except ArgumentError:
        return
    assert asked(listing, root, pattern=pattern) == asked(plain, root, pattern=pattern)


@pytest.mark.parametrize(
    "pattern", ["a?.py", "[ab].py", "*.{py,md}", "src/", "/a.py", "!a.py", "a\\*", "größe.py", "***/a", "a**", "src/**",
                "./a.py", "a//b", "*a*a*a*a*a*", "a b.py", "**/**/**/a", "@a", ""],
)  # fmt: skip
def test_what_is_left_to_ripgrep(pattern: str) -> None:
    assert plain_glob(pattern) is None


def test_a_tree_with_too_many_names_is_ripgreps(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "_MOST_NAMES", 5)
    plain, listing, programs = tools(root)
    assert asked(listing, root, pattern="a.py") == asked(plain, root, pattern="a.py") and programs.started == 1


def test_another_tree_under_the_same_name_is_listed_anew(tmp_path: Path) -> None:
    tool = Glob(tool_limits(), SearchPrograms())
    for name in ("a.py", "b.py"):
        tree = tmp_path / "tree"
        tree.mkdir()
        (tree / name).write_text("x")
        assert [f.path for f in asked(tool, tree, pattern="*.py").files] == [name]
        tree.rename(tmp_path / name)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no handle left"), FileNotFoundError("gone")])
def test_a_list_that_could_not_be_made_whole_is_not_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    plain, listing, programs = tools(root)
    scandir = os.scandir

    def failing(path: Any) -> Any:
        if os.fsencode(path).endswith(b"pkg/"):
            raise error
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(listing_module.os, "scandir", failing)
        assert asked(listing, root, pattern="a.py") == asked(plain, root, pattern="a.py") and programs.started == 1
    assert asked(listing, root, pattern="a.py") == asked(plain, root, pattern="a.py") and programs.started == 1


def test_lists_are_kept_up_to_a_number_of_names(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_module, "_MOST_KEPT", 5)
    listing = listing_module.Listing()
    for number in range(4):
        for name in "ab":
            (tmp_path / str(number)).mkdir(exist_ok=True)
            (tmp_path / str(number) / name).write_text("x")
        assert sorted(listing.names(tmp_path / str(number), ".", "*") or ()) == [b"a", b"b"]
    assert len(listing._trees) == 2
    assert len(listing.names(root, ".", "*.py") or ()) > 5 and not listing._trees


def test_a_name_on_which_stars_fall_in_many_ways() -> None:
    pattern = plain_glob("*a*a*a*ab")
    assert pattern is not None and pattern.fullmatch(b"a" * 254 + b"b")
    # Seconds each, were every place of every star tried.
    assert not any(pattern.fullmatch(b"%d" % n + b"a" * 250) for n in range(500))
