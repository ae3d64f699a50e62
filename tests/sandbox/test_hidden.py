"""grep, glob and the listing of a folder see the same files: those that the globs' rule of docs/sandbox.md names."""

from __future__ import annotations

import asyncio
import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegrep.protocol.calls import ToolStatus
from codegrep.sandbox import ArgumentError
from codegrep.sandbox.tools import Glob, Grep, Read, SearchPrograms, find_ripgrep
from tests.sandbox.trees import tool_limits

FILES = [
    "setup.py", "a.py", "src/a.py", "src/pkg/a.py", "src/pkg/b.pyi", "src/pkg/sub/a.py", "src/pkg/sub/deep/x.py",
    ".a.py", ".hidden/a.py", ".py/a.py", "src/.a.py", "src/.hidden/a.py", "src/.odd.py/a.py", "src/.odd.py/.a.py",
    "a/b/a/b/a.py", "a.py.orig", "aXpy", "src/A.py", "-a.py", "src/a b.py", "src/new\nline.py", "src/größe.py",
    "docs/index.md", "a.d/a.py", "src/a-b.c_d.py", "..a.py", "x/...py", ".env", ".github/ci.yml", ".github/.secret.yml",
    ".github/workflows/a.yml", "ci.yml",
]  # fmt: skip
GITS = ["src/pkg/.git", "vendor/.git/a.py"]
PROGRAMS = [
    pytest.param(None, id="rg", marks=pytest.mark.skipif(find_ripgrep() is None, reason="ripgrep is not installed")),
    pytest.param("", id="grep"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hidden") / "tree"
    for path in [*FILES, *GITS]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("needle\n")
    (folder / "link.py").symlink_to("a.py")
    (folder / "src/outside").symlink_to("/usr")
    os.mkfifo(folder / "src/pipe.py")
    return folder


def by_the_page(glob: str, path: str) -> list[str]:
    """The rule, as the page says it: part by part, in all ways. Of globs without braces, classes and backslashes."""

    def matches(parts: list[str], globs: list[str]) -> bool:
        if not globs:
            return not parts
        first, *others = globs
        if first == "**":
            if not others:
                return bool(parts) and not any(part.startswith(".") for part in parts)
            return matches(parts, others) or (
                bool(parts) and not parts[0].startswith(".") and matches(parts[1:], globs)
            )
        if not parts or (parts[0].startswith(".") and not first.startswith(".")):
            return False
        return fnmatch.fnmatchcase(parts[0], first) and matches(parts[1:], others)

    globs = ["**", glob] if "/" not in glob else glob.removeprefix("/").split("/")
    prefix = "" if path == "." else path + "/"
    below = [file.removeprefix(prefix) for file in FILES if file.startswith(prefix)]
    return sorted(prefix + file for file in below if matches(file.split("/"), globs))


def names(tool: Glob | Grep, root: Path, **arguments: Any) -> list[str]:
    out = asyncio.run(tool.run(root, tool.check(arguments)))
    assert out.status is ToolStatus.OK, out.text
    return sorted(file.path.replace("\\n", "\n") for file in out.files)


@pytest.mark.parametrize("ripgrep", PROGRAMS)
@pytest.mark.parametrize(
    ("glob", "path", "found"),
    [
        (".env", ".", [".env"]),
        (".e*", ".", [".env"]),
        ("[.]env", ".", []),
        ("?env", ".", []),
        ("{.env,ci.yml}", ".", [".env", "ci.yml"]),
        ("*.yml", ".", ["ci.yml"]),
        (".github/*.yml", ".", [".github/ci.yml"]),
        (".github/.*", ".", [".github/.secret.yml"]),
        (".github/**", ".", [".github/ci.yml", ".github/workflows/a.yml"]),
        ("**/.github/**/*.yml", ".", [".github/ci.yml", ".github/workflows/a.yml"]),
        ("**/.secret.yml", ".", []),
        ("*.yml", ".github", [".github/ci.yml", ".github/workflows/a.yml"]),
        (".*", ".github", [".github/.secret.yml"]),
        ("*", "src/.odd.py", ["src/.odd.py/a.py"]),
        (".git", ".", []),
        ("**/.git/*", ".", []),
    ],
)
def test_written_globs(root: Path, ripgrep: str | None, glob: str, path: str, found: list[str]) -> None:
    grep = Grep(tool_limits(), SearchPrograms(ripgrep))
    assert names(grep, root, pattern="needle", include=glob, path=path) == found
    assert names(Glob(tool_limits()), root, pattern=glob, path=path) == found


@pytest.mark.parametrize("ripgrep", PROGRAMS)
def test_without_a_glob_and_a_hidden_file_by_name(root: Path, ripgrep: str | None) -> None:
    grep = Grep(tool_limits(grep_include=""), SearchPrograms(ripgrep))
    assert (
        names(grep, root, pattern="needle") == by_the_page("**", ".") == names(Glob(tool_limits()), root, pattern="*")
    )
    assert names(grep, root, pattern="needle", path=".github") == by_the_page("*", ".github")
    assert names(grep, root, pattern="needle", path=".env") == [".env"]
    assert names(grep, root, pattern="needle", path=".github/.secret.yml") == [".github/.secret.yml"]
    assert ".env" not in names(grep, root, pattern="needle", include="!*.py")


@pytest.mark.parametrize("path", [".", "src", "src/pkg", ".github", ".hidden"])
def test_a_folder_is_listed_by_the_same_rule(root: Path, path: str) -> None:
    tool = Read(tool_limits())
    text = asyncio.run(tool.run(root, tool.check({"path": path}))).text
    listed = {name.rstrip("/") for name in text.split(" with ")[1].removesuffix("; read one file").split(", ")}
    below = names(Glob(tool_limits()), root, pattern="**", path=path)
    seen = {name.removeprefix("" if path == "." else path + "/").split("/")[0].replace("\n", "\\n") for name in below}
    assert listed - {"link.py", "outside", "pipe.py", "vendor", "x"} == seen  # x holds only what is hidden


PARTS = st.sampled_from(
    ["**", "*", "?", "a", ".", "py", ".py", "src", "pkg", "a.py", "b", "/", "/", "-", "hidden", ".github", ".a", "yml"]
)


def programs() -> Iterator[SearchPrograms]:
    if find_ripgrep() is not None:
        yield SearchPrograms()
    yield SearchPrograms("")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PARTS, min_size=1, max_size=6).map("".join), st.sampled_from([".", "src", ".github", ".hidden"]))
def test_any_glob(root: Path, pattern: str, path: str) -> None:
    glob = Glob(tool_limits())
    try:
        pattern = str(glob.check({"pattern": pattern})["pattern"])
    except ArgumentError:
        return
    if pattern.endswith("/") or pattern.startswith("/"):
        return  # a model's own root: test_glob.py
    right = by_the_page(pattern, path)
    assert names(glob, root, pattern=pattern, path=path) == right
    if "/" in pattern:  # of grep's globs the root is the repository's
        pattern = f"{path}/{pattern}".removeprefix("./")
    for one in programs():
        assert names(Grep(tool_limits(), one), root, pattern="needle", include=pattern, path=path) == right
