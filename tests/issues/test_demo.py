from __future__ import annotations

import ast
import json
import multiprocessing
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.errors import DataError
from codegrep.issues.demo import Demo, package_folder
from codegrep.issues.docstrings import Docstring, cut_docstrings, find_docstrings, lines_of, query_of
from codegrep.issues.git import blob, open_repository
from tests.sandbox.trees import run_git

SOURCE = b'''"""Module text stays."""
import os

class Thing:
    """A thing that is cut."""

class Other(Thing):
    """First line.

    More text of other.
    """
    x = "not a docstring"

    def method(self):
        r"""Method text."""
        return 1

    async def later(self): "same line"

    def joined(self):
        """Joined text."""; return 2

    def commented(self):
        """Commented text."""  # note
        return 3
\r
def crlf():\r
    """Windows text."""\r
    return 4\r
'''


def test_cutting_leaves_the_code_alone() -> None:
    found = list(find_docstrings(SOURCE, ast.parse(SOURCE)))
    assert [docstring.name for docstring in found] == ["Thing", "Other", "Other.method", "crlf"]
    assert [docstring.kind for docstring in found] == ["class", "class", "method", "function"]
    cut = cut_docstrings(SOURCE, found)
    for text in (b"A thing", b"First line", b"Method text", b"Windows text"):
        assert text not in cut
    assert b"class Thing:\n    pass\n" in cut
    assert b"Module text stays" in cut and b"same line" in cut and b"Joined text" in cut and b"not a docstring" in cut
    assert b"def crlf():\r\n    return 4\r\n" in cut
    namespace: dict[str, object] = {}
    exec(compile(cut, "cut", "exec"), namespace)
    assert namespace["crlf"]() == 4  # type: ignore[operator]
    assert cut_docstrings(SOURCE, []) == SOURCE


def test_lines_of_an_object_are_those_of_the_cut_file() -> None:
    """A function has all its lines, a class those before its first method."""
    cut = cut_docstrings(SOURCE, list(find_docstrings(SOURCE, ast.parse(SOURCE))))
    lines = cut.decode().split("\n")

    def text(name: str) -> list[str]:
        first, last = lines_of(cut, name)
        return [line.rstrip("\r") for line in lines[first - 1 : last]]

    assert text("Thing") == ["class Thing:", "    pass"]
    assert text("Other") == ["class Other(Thing):", '    x = "not a docstring"']
    assert text("Other.method") == ["    def method(self):", "        return 1"]
    assert text("crlf") == ["def crlf():", "    return 4"]
    decorated = b"import a\n\n@a.b(\n    1)\n@a.c\nclass C:\n\n    # note\n    @a.d\n    def f(self):\n        pass\n"
    assert lines_of(decorated, "C") == (3, 8) and lines_of(decorated, "C.f") == (9, 11)


def test_any_subset_of_the_standard_library_can_be_cut() -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    for name in ("argparse.py", "tarfile.py", "dataclasses.py", "typing.py"):
        source = (library / name).read_bytes()
        found = list(find_docstrings(source, ast.parse(source)))
        names = [docstring.name for docstring in found]
        chosen = [docstring for docstring in found if names.count(docstring.name) == 1]
        assert len(chosen) > 5
        cut = cut_docstrings(source, chosen[::2])
        left = {docstring.name for docstring in find_docstrings(cut, ast.parse(cut))}
        assert not left & {docstring.name for docstring in chosen[::2]}
        assert {docstring.name for docstring in chosen[1::2]} <= left


def doc(text: str, name: str = "load_rows", kind: str = "function") -> Docstring:
    return Docstring(name, kind, text, 1, 1, b"", False)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Reads rows.\n\nArgs:\n    path: where", "Reads rows."),
        ("Reads rows.\n\nSecond one\nwraps.\n\nParameters\n----------\nx : int", "Reads rows.\n\nSecond one wraps."),
        (
            "Reads :class:`~a.b.Row` and ``x`` and [`Trainer`] and [docs](http://x).",
            "Reads Row and x and Trainer and docs.",
        ),
        ("Reads rows.\n\n:param path: where", "Reads rows."),
        ("Reads rows.\n>>> load_rows()", "Reads rows."),
        ("Args:\n  x", ""),
        ("Use load_rows() or `rows.load_rows` twice.", "Use this function or this function twice."),
        ("A load_rows function that reads.", "This function that reads."),
    ],
)
def test_queries(text: str, query: str) -> None:
    assert query_of(doc(text), 80, True) == query


def test_plain_word_names_are_kept_and_length_is_bounded() -> None:
    assert query_of(doc("Please load it.", "A.load", "method"), 80, True) == "Please load it."
    assert query_of(doc("Use load_rows.", "load_rows"), 80, False) == "Use load_rows."
    assert query_of(doc("one two three\n\nfour five\n\nsix"), 4, True) == "One two three\n\nfour five"


@given(st.text(max_size=300))
def test_query_of_any_text(text: str) -> None:
    query_of(doc(text), 20, True)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    for name in ("demo_one", "demo_two"):
        for number in range(4):
            words = " ".join(f"{name.split('_')[1]}{letter}word{number}{letter}" for letter in "abcdefghijklmnop")
            path = site / name / "sub" / f"m{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            functions = "\n\n".join(
                f'def f{i}():\n    """Part {letters} tells of {letters[::-1]} {words}"""\n    return {i}'
                for i, letters in enumerate(("alpha", "bravo", "gamma"))
            )
            path.write_text(functions + "\n")
        (site / name / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
        (site / name / "same1.py").write_text(
            'def g():\n    """The same words stand twice here and so they are no good query at all for anyone."""\n'
        )
        (site / name / "same2.py").write_text((site / name / "same1.py").read_text())
        (site / name / "broken.py").write_text("def (:\n")
        (site / name / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
        (site / name / "tests").mkdir()
        (site / name / "tests" / "test_x.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(site))
    return site


def words_only(**changes: object) -> dict[str, object]:
    return {"packages": ["demo_one", "demo_two"], "min_words": 5, "hide_name": False} | changes


def test_repositories_hold_the_code_without_the_answers(packages: Path, tmp_path: Path) -> None:
    result = Demo(str(tmp_path / "out"), **words_only()).load()  # type: ignore[arg-type]
    assert set(result.repositories) == {"demo/demo_one", "demo/demo_two"}
    assert len(result.issues) == 16  # two of three in each of four files
    assert len({issue.instance_id for issue in result.issues}) == 16
    for issue in result.issues:
        place = result.repositories[issue.repo].local
        assert place is not None
        listed = run_git("ls-tree", "-r", "--name-only", issue.base_commit, cwd=place).split()
        (gold,) = issue.gold_files
        assert gold in listed
        assert not any("tests/" in name for name in listed)
        with open_repository(place) as repo:
            contents = {name: blob(repo, f"{issue.base_commit}:{name}") for name in listed}
        assert ast.parse(contents[gold])
        assert not any(issue.problem_statement.encode() in content for content in contents.values())
    assert "demo_one" not in sys.modules


def test_gold_lines_hold_the_documented_object(packages: Path, tmp_path: Path) -> None:
    """Also in an index that is read again."""
    source = Demo(str(tmp_path / "out"), **words_only())  # type: ignore[arg-type]
    for loaded in (source.load(), source.load()):
        for issue in loaded.issues:
            (span,) = issue.gold_ranges
            place = loaded.repositories[issue.repo].local
            assert place is not None and (span.path,) == issue.gold_files
            lines = run_git("show", f"{issue.base_commit}:{span.path}", cwd=place).split("\n")
            assert lines[span.start - 1].lstrip().startswith(("def ", "class ", "async def ", "@"))
            assert lines[span.end - 1].strip() and 1 <= span.start <= span.end <= len(lines)


def test_same_content_same_commit_everywhere(packages: Path, tmp_path: Path) -> None:
    one = Demo(str(tmp_path / "one"), **words_only()).load()  # type: ignore[arg-type]
    two = Demo(str(tmp_path / "two"), **words_only()).load()  # type: ignore[arg-type]
    assert one.issues == two.issues
    again = Demo(str(tmp_path / "one"), **words_only()).load()  # type: ignore[arg-type]
    assert again.issues == one.issues and again.repositories == one.repositories
    other = Demo(str(tmp_path / "one"), **words_only(seed=1)).load()  # type: ignore[arg-type]
    assert {issue.base_commit for issue in other.issues}.isdisjoint(issue.base_commit for issue in one.issues)


def test_damage_and_leftovers_are_repaired(packages: Path, tmp_path: Path) -> None:
    source = Demo(str(tmp_path / "out"), **words_only())  # type: ignore[arg-type]
    first = source.load()
    place = first.repositories["demo/demo_one"].local
    assert place is not None
    (place / "issues.json").write_text("{")
    assert source.load().issues == first.issues
    for pack in (place / "objects").rglob("*"):
        if pack.is_file():
            pack.chmod(0o644)
            pack.unlink()
    assert source.load().issues == first.issues
    assert json.loads((place / "issues.json").read_text())
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".building")]


def _load(folder: str) -> list[str]:
    return [issue.instance_id for issue in Demo(folder, **words_only()).load().issues]  # type: ignore[arg-type]


def test_two_processes_at_once(packages: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        answers = pool.map(_load, [str(tmp_path / "out")] * 8)
    assert all(answer == answers[0] for answer in answers)
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_missing_packages(packages: Path, tmp_path: Path) -> None:
    result = Demo(str(tmp_path / "out"), **words_only(packages=["demo_one", "not_there_x", "json.nope", "../x"])).load()  # type: ignore[arg-type]
    assert result.skipped["package not installed"] == 3
    assert "not_there_x" in str(result.broken[0])
    with pytest.raises(DataError, match="not_there_x"):
        Demo(str(tmp_path / "out"), packages=["not_there_x"]).load()
    with pytest.raises(DataError, match="list"):
        Demo(str(tmp_path / "out"), packages="hydra")


def test_parts_of_packages(packages: Path, tmp_path: Path) -> None:
    assert package_folder("demo_one.sub") == packages / "demo_one" / "sub"
    result = Demo(str(tmp_path / "out"), **words_only(packages=["demo_one.sub"])).load()  # type: ignore[arg-type]
    assert {issue.repo for issue in result.issues} == {"demo/demo_one"}
    assert all(issue.gold_files[0].startswith("demo_one/sub/m") for issue in result.issues)


def test_installed_packages_in_time(tmp_path: Path) -> None:
    source = Demo(str(tmp_path / "out"), packages=["hydra", "omegaconf", "git"])
    started = time.monotonic()
    result = source.load()
    assert time.monotonic() - started < 60
    assert len(result.issues) > 40
    assert all(len(issue.problem_statement.split()) >= 12 for issue in result.issues)
    assert source.load().issues == result.issues
