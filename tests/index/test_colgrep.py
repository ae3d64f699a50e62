"""colgrep as an Index, with a stand-in for the program: how it is asked, and what is made of its answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from codegrep.errors import ConfigError, InfrastructureError
from codegrep.index.colgrep import ColgrepIndex
from codegrep.index.search import PatternError


def unit(file: Path | str, **changed: Any) -> dict[str, Any]:
    named = {"name": "run", "qualified_name": "App.run", "unit_type": "method", "signature": "def run(self)"}
    return {"unit": {**named, "file": str(file), "line": 3, "end_line": 9, "docstring": None, **changed}, "score": 0.5}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: object, code: int = 0, complaint: str = "") -> Path:
    """A program that notes how it was called."""
    folder.mkdir()
    program, calls = folder / "colgrep", folder / "calls.json"
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"json.dump([sys.argv[1:], dict(os.environ)], open({str(calls)!r}, 'w'))\n"
        f"print({json.dumps(rows)!r}); sys.stderr.write({complaint!r}); sys.exit({code})\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return calls


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "src").mkdir(parents=True)
    return tmp_path / "tree"


def test_units_come_back_in_its_order_and_inside_the_tree(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        unit(root / "src/a.py"),
        unit("/etc/passwd"),
        unit(root / "tests/test_a.py"),
        unit(root / ".git"),
        unit("b.py"),
    ]
    calls = install(tmp_path / "bin", monkeypatch, rows)
    monkeypatch.setenv("A_SECRET", "x")
    hits = ColgrepIndex(root, tmp_path / "data", with_tests=False).search("-e status", 5, "src", "def .*")
    assert [(hit.unit.path, hit.unit.start, hit.unit.end) for hit in hits] == [("src/a.py", 3, 9), ("b.py", 3, 9)]
    assert (hits[0].unit.name, hits[0].unit.signature, hits[0].unit.docstring) == ("App.run", "def run(self)", "")
    arguments, environment = json.loads(calls.read_text())
    assert arguments == ["search", "--json", "--yes", "--results=10", "--pattern=def .*", "--", "-e status", "./src"]
    assert environment["XDG_DATA_HOME"] == str(tmp_path / "data") and "A_SECRET" not in environment
    ColgrepIndex(root, tmp_path, with_tests=True).search("x", 1, "*.py")
    assert json.loads(calls.read_text())[0][4:] == ["--include=*.py", "--", "x", "."]


@pytest.mark.parametrize(
    ("rows", "code", "complaint", "pattern", "kind"),
    [
        ([], 1, "regex parse error: unclosed group", "(", PatternError),
        ([], 1, "no model", None, InfrastructureError),
        ({"unit": 1}, 0, "", None, InfrastructureError),
        ([{"file": "a.py"}], 0, "", None, InfrastructureError),
    ],
)
def test_what_goes_wrong_is_one_line(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    rows: object, code: int, complaint: str, pattern: str | None, kind: type[Exception],
) -> None:  # fmt: skip
    install(tmp_path / "bin", monkeypatch, rows, code, complaint)
    with pytest.raises(kind) as caught:
        ColgrepIndex(root, tmp_path, with_tests=True).search("x", 1, None, pattern)
    assert "\n" not in str(caught.value)


def test_without_the_program(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="colgrep is not installed"):
        ColgrepIndex(root, tmp_path, with_tests=True)
