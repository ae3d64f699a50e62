"""The index narrows a search down and never changes its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegrep.sandbox import Outcome, Repositories, Worktrees
from codegrep.sandbox import index as index_module
from codegrep.sandbox.index import ContentIndex, _listed
from codegrep.sandbox.literals import ANYTHING, required_literals
from codegrep.sandbox.tools import Grep, SearchPrograms, find_ripgrep
from tests.sandbox.trees import Made, make_repository, tool_limits

pytestmark = pytest.mark.skipif(find_ripgrep() is None, reason="ripgrep is not installed")

FILES: dict[str, bytes | str] = {
    "src/app.py": b"import os\n\n\nclass Widget:\n    def run(self, kind):\n        return kind\n",
    "src/deep/util.py": b"def helper(x):\n    return 'Widget' + x\n",
    "src/deep/kelvin.py": "# \u212aind and \u017felf\nclass X: pass\n".encode(),
    "src/upper.py": b"CLASS WIDGET = HELPER\n",
    "src/bom.py": b"\xef\xbb\xbfimport os\r\nclass Bom:\r\n",
    "src/wide.py": "class Widget:\n".encode("utf-16"),
    "src/binary.py": b"class Widget\n\0\nclass Late\n",
    "src/accents.py": "# Größe der Klasse: éclair\nclass Größe: pass\n".encode(),
    "src/latin.py": b"# caf\xe9 class\n",
    "src/empty.py": b"",
    ".hidden.py": b"class Hidden\n",
    ".github/x.py": b"class Widget in github\n",
    ".odd.py/y.py": b"class Odd\n",
    "docs/index.md": b"# class Widget\n",
    "docs/.hidden": b"class Hidden\n",
    "README": b"class of its own\n",
    "link.py": "src/app.py",
    "tests/test_app.py": b"from src import Widget\n\ndef test_run():\n    assert Widget().run(1) == 1\n",
}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Grep, Grep, ContentIndex]]:
    folder = tmp_path_factory.mktemp("indexed")
    made = make_repository(folder / "source.git", [FILES])
    repositories = Repositories(folder / "bare", 60)
    clone = repositories.ensure("o/n", made)
    trees = Worktrees(folder / "trees", repositories)
    lease = trees.lease("o/n", made.commits[0])
    index = ContentIndex()
    index.add(lease.path, clone.path, made.commits[0])
    programs = SearchPrograms()
    yield lease.path, Grep(tool_limits(), programs), Grep(tool_limits(), programs, index), index
    trees.close()


def run(tool: Grep, root: Path, arguments: dict[str, Any]) -> Outcome:
    return asyncio.run(tool.run(root, tool.check(arguments)))


def make_ready(tool: Grep, root: Path, index: ContentIndex) -> None:
    for _ in range(30):
        run(tool, root, {"pattern": "Widget"})
    assert index.is_ready(root) and index.counts.blobs > 10


PATTERNS = [
    "Widget", "widget", "class", "Widget|helper", "def (run|helper)", r"\bclass\s+\w+", "class Wid",
    "Widge[t]", "Widgets?",
    "Widgett*", "Widgett+", "W(idget)+", "(?:Widget){1,2}", "(?i)WIDGET", "kind", "self", "KIND", "Größe",
    "éclair", "caf",
    "Late", "Hidden", "Odd", "import os$", "^import", "os\r", "zzz_nowhere", "class|", "(class|)", "(", "[",
    "*", "a{", "x**",
    r"\<class\>", r"\bclass\b{start}", r"\x63lass", r"[[:alpha:]]idget", "[^]]lass", "[a&&b]lass",
    "(?x) c l a s s", "W.dget",
    "Wi(?:dget|zard)", "class (?:Widget|X|Bom)", r"\(\)\.run\(", "x", "", "return 'Widget' \\+ x", "__",
]  # fmt: skip
INCLUDES = [
    "*.py",
    "",
    "*",
    "*.md",
    "*.py,*.md",
    "*.{py,md}",
    "src/**/*.py",
    ".*",
    "*app.py",
    "*.PY",
    "!*.py",
    "*.p?",
    "[*.py",
]
PLACES = [".", "src", "src/deep", ".github", "docs", "src/app.py", ".odd.py", "tests", "nowhere"]


# Every pattern at the root, every include and every place with a few patterns; both cases of the letters in turn.
ASKED = [
    *((pattern or "Widget", "*.py", ".", n % 2 == 0) for n, pattern in enumerate(PATTERNS)),
    *(("class", include, ".", False) for include in INCLUDES),
    *(("self|kind", include, "src", True) for include in INCLUDES),
    *(
        (pattern, include, place, False)
        for place in PLACES
        for include in ("*.py", "")
        for pattern in ("class", "idge")
    ),
]


def test_every_answer_is_the_one_without_an_index(indexed: tuple[Path, Grep, Grep, ContentIndex]) -> None:
    root, plain, quick, index = indexed
    make_ready(quick, root, index)
    answered = index.counts.answered
    for pattern, include, place, ignore_case in ASKED:
        asked = {"pattern": pattern, "include": include, "ignore_case": ignore_case, "path": place}
        if "\r" not in pattern:
            assert run(quick, root, asked) == run(plain, root, asked), asked
    assert index.counts.answered > answered + 40


PIECES = st.sampled_from(
    ["class", "Wid", "get", " ", ".", "*", "+", "?", "|", "(", ")", "(?:", "[a-z]", "[^x]", r"\b", r"\w", r"\.",
     "^", "$",
     "{2}", "{0,1}", "{1,}", "run", "self", "kind", "é", "Grö", "\\", "[", "]", "x", "def ", r"\s+", "K", "ſ"]
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(PIECES, min_size=1, max_size=7), ignore_case=st.booleans(), include=st.sampled_from(["*.py", ""])
)
def test_whatever_the_pattern(
    indexed: tuple[Path, Grep, Grep, ContentIndex], pieces: list[str], ignore_case: bool, include: str
) -> None:
    root, plain, quick, index = indexed
    make_ready(quick, root, index)
    asked = {"pattern": "".join(pieces), "ignore_case": ignore_case, "include": include}
    assert run(quick, root, asked) == run(plain, root, asked)


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        ("Widget", [{"widget"}]),
        ("foo|barbaz", [{"foo"}, {"barbaz"}]),
        (r"def\s+run_all\(", [{"def", "run_all("}]),
        ("colou?r_map", [{"colo", "r_map"}]),
        ("ab+cde", [{"cde"}]),
        ("abc+de", [{"abc"}]),
        ("(?:get|set)_value", [{"get", "_value"}, {"set", "_value"}]),
        ("x(foo)?bar", [{"bar"}]),
        ("x(foo)+bar", [{"foo", "bar"}]),
        (r"a\.py", [{"a.py"}]),
        ("foo{2,3}bar", [{"foo", "bar"}]),
    ],
)
def test_what_a_pattern_requires(pattern: str, pieces: list[set[str]]) -> None:
    assert sorted(map(sorted, required_literals(pattern, False))) == sorted(map(sorted, pieces))


@pytest.mark.parametrize(
    "pattern",
    ["ab", ".*", "foo|x", "(?i)foo", "(?x)f o o", r"\x66oo", r"foo\<", "foo(", "foo)", "foo**", "foo{a}",
     "[[:alpha:]]foo",
     "(foo|)", r"\pLfoo", r"\b{start}foo", "foo\\"],
)  # fmt: skip
def test_what_is_not_understood_requires_nothing(pattern: str) -> None:
    assert required_literals(pattern, False) == ANYTHING


def test_letters_outside_ascii_are_left_to_ripgrep_when_case_is_ignored() -> None:
    assert required_literals("Größe_alt", True) == (frozenset(["e_alt"]),) == required_literals("Größe_ALT", True)
    assert (
        required_literals("Größe_alt", False) == (frozenset(["größe_alt"]),) != required_literals("GRÖSSE_alt", False)
    )


def test_commits_share_signatures(tmp_path: Path, many: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    monkeypatch.setattr(index_module, "_listed", lambda *at: listed.append(at[1]) or _listed(*at))
    repositories = Repositories(tmp_path / "bare", 60)
    clone = repositories.ensure("o/n", many)
    trees, index = Worktrees(tmp_path / "trees", repositories), ContentIndex()
    for number in range(3):
        lease = trees.lease("o/n", many.commits[number])
        index.add(lease.path, clone.path, many.commits[number])
        tool = Grep(tool_limits(), SearchPrograms(), index)
        searches = 0
        while not index.is_ready(lease.path):
            assert len(listed) == number
            run(tool, lease.path, {"pattern": "def f17"})
            searches += 1
        # 60 files are the same in every commit: only the first tree has to earn its index.
        assert searches == (13 if number == 0 else 1)
        # And before that nobody has to know which files it has.
        assert listed == many.commits[: number + 1]
    assert index.counts.blobs == 60 + 3


def test_no_index_beyond_its_memory_and_none_for_other_trees(tmp_path: Path, many: Made) -> None:
    repositories = Repositories(tmp_path / "bare", 60)
    clone = repositories.ensure("o/n", many)
    lease = Worktrees(tmp_path / "trees", repositories).lease("o/n", many.commits[0])
    for index in (ContentIndex(max_bytes=4096 * 10), ContentIndex(max_bytes=0), ContentIndex()):
        if index.size == 0 and index._max != 512 << 20:
            index.add(lease.path, clone.path, many.commits[0])
        tool = Grep(tool_limits(), SearchPrograms(), index)
        for _ in range(20):
            assert len(run(tool, lease.path, {"pattern": "def f17"}).files) == 1
        assert index.counts.blobs == 0 and index.counts.answered == 0
