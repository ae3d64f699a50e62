"""`codegrep search` on a working tree: what is there counts, committed or not."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import pytest

from codegrep.cli import COMMANDS, run
from codegrep.errors import ConfigError, RepositoryError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "shop"
    (root / "tests").mkdir(parents=True)
    (root / "basket.py").write_text("class Basket:\n    def total(self):\n        return sum(self.prices)\n")
    (root / "invoice.py").write_text("def render_invoice(order):\n    return order.number\n")
    (root / "tests" / "test_basket.py").write_text("def test_total_of_a_basket():\n    assert Basket().total() == 0\n")
    (root / "ignored.py").write_text("def basket_total():\n    pass\n")
    (root / ".gitignore").write_text("ignored.py\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def answers(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    code = run(COMMANDS["search"], [*arguments, "--json"])
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    assert code == (0 if found else 1)
    return found


def test_uncommitted_files_are_found_and_ignored_ones_are_not(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answers(capsys, "The basket total is wrong", "--repo", str(tree))
    assert found[0]["path"] == "basket.py"
    assert {"ignored.py", "tests/test_basket.py"}.isdisjoint(str(one["path"]) for one in found)
    assert "tests/test_basket.py" in {one["path"] for one in answers(capsys, "basket", "--repo", str(tree), "--tests")}


def test_a_change_is_seen_by_the_next_search(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answers(capsys, "invoice number", "--repo", str(tree), "-k", "1")[0]["path"] == "invoice.py"
    (tree / "invoice.py").unlink()
    (tree / "bill.py").write_text("def invoice_number(order):\n    return order.number\n")
    assert answers(capsys, "invoice number", "--repo", str(tree), "-k", "1")[0]["path"] == "bill.py"


def test_path_and_pattern_narrow_the_answer(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answers(capsys, "basket invoice", "--repo", str(tree), "--pattern", r"def render_\w+")
    assert [one["path"] for one in found] == ["invoice.py"]
    with pytest.raises(ConfigError, match="no regular expression"):
        run(COMMANDS["search"], ["basket", "--repo", str(tree), "--pattern", "("])


def test_the_text_comes_from_standard_input_or_a_file(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("basket total"))
    assert answers(capsys, "-", "--repo", str(tree))[0]["path"] == "basket.py"
    (tree / "issue.md").write_text("basket total", encoding="utf-8")
    assert answers(capsys, "--file", str(tree / "issue.md"), "--repo", str(tree), "--path", "*.py")[0]["path"] == (
        "basket.py"
    )
    with pytest.raises(ConfigError, match="no text"):
        run(COMMANDS["search"], ["--repo", str(tree)])


def test_for_people_a_line_a_file(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMMANDS["search"], ["basket total", "--repo", str(tree), "-k", "1"]) == 0
    assert capsys.readouterr().out.startswith("basket.py:")
    with pytest.raises(RepositoryError, match="no folder"):
        run(COMMANDS["search"], ["basket", "--repo", str(tree / "nowhere")])
