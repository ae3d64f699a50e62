"""Working trees change under a retriever, and it follows; what an agent answers is checked against the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from codegrep.errors import RepositoryError
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rollout.record import Rollout, Turn
from codegrep.serve.retriever import Retriever
from codegrep.serve.working_tree import WorkingTree, index_folder, listing


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    (root / "src").mkdir(parents=True)
    (root / "src" / "basket.py").write_text("class Basket:\n    def total(self):\n        return 0\n")
    (root / "src" / "invoice.py").write_text("def render_invoice(order):\n    return order.number\n")
    for number in range(8):  # words of half of all units weigh nothing
        (root / "src" / f"other{number}.py").write_text(f"def unrelated_{number}():\n    return {number}\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def paths(retriever: Retriever, text: str, root: Path, **more: Any) -> list[str]:
    return [answer.path for answer in retriever.search(text, root, **more)]


def test_edits_new_files_deletions_and_ignores_are_seen_by_the_next_search(shop: Path) -> None:
    retriever = Retriever.load("bm25")
    assert paths(retriever, "zebra", shop) == []
    (shop / "src" / "basket.py").write_text("class Basket:\n    def zebra(self):\n        return 0\n")
    assert paths(retriever, "zebra", shop) == ["src/basket.py"]
    (shop / "new").mkdir()
    (shop / "new" / "deep.py").write_text("def zebra():\n    pass\n")
    assert set(paths(retriever, "zebra", shop)) == {"src/basket.py", "new/deep.py"}
    (shop / "src" / "basket.py").unlink()
    assert paths(retriever, "zebra", shop) == ["new/deep.py"]
    (shop / ".gitignore").write_text("new/\n")
    assert paths(retriever, "zebra", shop) == []


def test_an_edit_of_the_same_length_within_one_tick_is_seen(shop: Path) -> None:
    retriever = Retriever.load("bm25")
    for name in ("aaaa", "bbbb", "cccc", "dddd"):
        (shop / "src" / "basket.py").write_text(f"def {name}():\n    pass\n")
        assert paths(retriever, name, shop) == ["src/basket.py"]


def test_nothing_is_read_again_while_nothing_changes(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (shop, shop / "src", *shop.rglob("*.py"), *(shop / ".git").rglob("*")):
        os.utime(path)
    monkeypatch.setattr("codegrep.serve.working_tree._TICK_NS", 0)
    tree = WorkingTree(shop)
    first = tree.index()
    monkeypatch.setattr("codegrep.serve.working_tree.source_file", None)
    monkeypatch.setattr("codegrep.serve.working_tree.listing", None)
    assert tree.index() is first


def test_links_are_not_followed(shop: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.py").write_text("def zebra():\n    pass\n")
    (shop / "link.py").symlink_to(secret / "key.py")
    (shop / "folder").symlink_to(secret)
    retriever = Retriever.load("bm25")
    assert paths(retriever, "zebra", shop) == []
    subprocess.run(["git", "-C", str(shop), "add", "."], check=True)
    shutil.rmtree(shop / "src")
    (shop / "src").symlink_to(secret)  # a tracked folder becomes a link
    (secret / "basket.py").write_text("def zebra():\n    pass\n")
    assert paths(retriever, "zebra", shop) == []


def test_folders_without_git_empty_ones_binary_files_and_none_at_all(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    retriever = Retriever.load("hybrid")
    assert paths(retriever, "basket", root) == []
    (root / "data.bin").write_bytes(b"\0basket\xff" * 100)
    (root / "basket.py").write_bytes(b"def basket():\n    pass\n")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "basket.js").write_text("function basket() {}\n")
    assert paths(retriever, "basket", root) == ["basket.py"]
    with pytest.raises(RepositoryError, match="no folder"):
        retriever.search("basket", root / "nowhere")


def test_a_folder_that_cannot_be_read_is_one_line(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RepositoryError, match="cannot be read"):
        Retriever.load("bm25").search("basket", shop)


def test_without_the_program_git_a_folder_is_walked(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert {"src/basket.py", "src/invoice.py"} < set(listing(shop)[0])


def test_the_least_recently_used_tree_goes(shop: Path, tmp_path: Path) -> None:
    retriever = Retriever("bm25", memory_mb=0)
    other = tmp_path / "other"
    shutil.copytree(shop, other)
    retriever.search("basket", shop)
    retriever.search("basket", other)
    assert list(retriever.loaded()) == [str(other)]


def test_what_is_forgotten_stays_bounded(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegrep.index.store._FLUSHED", 5)
    monkeypatch.setattr("codegrep.index.store._MAX_SEGMENTS", 3)
    tree = WorkingTree(shop)
    for number in range(30):
        (shop / "src" / "basket.py").write_text(f"def basket_{number}():\n    pass\n")
        tree.index()
    assert tree._store is not None and len(tree._store._blobs) <= 2 * 10 + 5
    (folder,) = index_folder(shop).iterdir()
    assert len(list(folder.iterdir())) <= 4


def test_why_says_what_speaks_for_a_file(shop: Path) -> None:
    (answer,) = Retriever.load("hybrid").search("src/invoice.py: render_invoice() fails", shop, 1, why=True)
    assert answer.path == "src/invoice.py"
    assert {"the text gives its path", "it defines render_invoice, which the text mentions"} <= set(answer.why)


class Told:
    """In the place of an Agent: answers what it is told."""

    def __init__(self, files: list[str], text: str) -> None:
        self._files, self._text = files, text

    def rollout(self, text: str, root: Path, on_turn: object = None) -> Rollout:
        turn = Turn(0, 1, self._text)
        return Rollout(
            "r", "q", "r", "0", "policy", [], [], [], [], [turn], self._files, True, [], ExitCause.ANSWER.value
        )


def test_a_path_or_range_that_does_not_exist_is_never_given(shop: Path) -> None:
    (shop / "data.json").write_text("{}\n")
    files = ["src/gone.py", "../secret.py", "src/invoice.py", "src/basket.py", "data.json", "src"]
    text = (
        '<answer>{"files": ["src/invoice.py", "src/basket.py"], "line_ranges": '
        '[["src/invoice.py", 1, 2], ["src/basket.py", 2, 400]]}</answer>'
    )
    agent: Any = Told(files, text)
    found = Retriever("hybrid", agent).search("invoice", shop)
    assert [(one.path, one.start, one.end) for one in found] == [
        ("src/invoice.py", 1, 2),
        ("src/basket.py", 1, 1),  # the lines of the index, for the file has no line 400
        ("data.json", 1, 1),
    ]
    assert found[0].score > found[1].score
    with pytest.raises(ValueError, match="whole tree"):
        Retriever("hybrid", agent).search("invoice", shop, path="src")
