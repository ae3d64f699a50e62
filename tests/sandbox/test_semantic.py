"""search: what it finds and refuses, and what becomes of its indexes: built once, changed, waited for, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import codegrep.index.store as store_module
from codegrep.config import SandboxConfig, SearchToolConfig
from codegrep.index.search import INDEXES
from codegrep.protocol.calls import ToolCall, ToolResult, ToolStatus
from codegrep.protocol.schemas import schemas_of
from codegrep.protocol.shown import ShownFile, shown_files
from codegrep.sandbox import Sandbox, Toolbox
from codegrep.sandbox.tools import SearchPrograms
from codegrep.sandbox.tree_indexes import TreeIndexes
from tests.index.test_colgrep import install, unit
from tests.sandbox.trees import Made, Tree, make_repository, tool_limits

NAMES = ["search", "grep", "read"]
SHOP = {
    "shop/basket.py": b'class Basket:\n    """What a customer buys."""\n\n    def total(self):\n        return 1\n',
    "shop/tax.py": b"import decimal\n\n\ndef sales_tax(amount):\n    return amount\n",
    "shop/odd\xe9.py".encode("latin-1").decode("utf-8", "surrogateescape"): b"def odd_name():\n    pass\n",
    "tests/test_basket.py": b"def test_total():\n    assert basket_total\n",
    "notes.txt": b"The basket is what a customer buys.\n",
    ".hidden/basket.py": b"def basket_total():\n    pass\n",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Made:
    second = {**SHOP, "shop/tax.py": b"def discount(amount):\n    return amount\n"}
    return make_repository(tmp_path_factory.mktemp("shop") / "source.git", [SHOP, second])


@pytest.fixture
def box(tmp_path: Path, shop: Made) -> Iterator[Sandbox]:
    made = sandbox(tmp_path / "root", shop)
    yield made
    made.close()


def sandbox(folder: Path, made: Made, **changed: Any) -> Sandbox:
    settings = SandboxConfig(clone_timeout=60, min_free_gib=0, actors=1, max_worktrees=0)
    return Sandbox.under(folder, tool_limits(**{"names": NAMES, **changed}), settings, {"o/n": made})


def search_settings(**changed: Any) -> SearchToolConfig:
    return SearchToolConfig(**{"index": "hybrid", "results": 10, "max_results": 50, "timeout": 30.0, **changed})


def search(box: Sandbox, made: Made, commit: int = 0, **arguments: Any) -> ToolResult:
    return asyncio.run(box.run_turn("o/n", made.commits[commit], [ToolCall("search", arguments)]))[0]


def on(root: Path, toolbox: Toolbox, **arguments: Any) -> ToolResult:
    return asyncio.run(toolbox.run(root, ToolCall("search", arguments), 1))


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []
    real = store_module.digest_files

    def counting(files: Any, model: Any) -> Any:
        paths.extend(path for path, _ in files)
        return real(files, model)

    monkeypatch.setattr(store_module, "digest_files", counting)
    return paths


def test_units_are_ranked_and_shown_with_their_heads(box: Sandbox, shop: Made) -> None:
    result = search(box, shop, query="what does a customer buy in a Basket")
    lines = result.text.split("\n")
    assert result.status is ToolStatus.OK and not result.truncated
    assert "shop/basket.py:1-2: class Basket: What a customer buys." in lines[:2]
    assert "shop/basket.py:4-5: def total(self) in Basket" in lines
    assert "notes.txt:1-1: The basket is what a customer buys." in lines
    assert [file.path for file in result.files] == list(dict.fromkeys(line.partition(":")[0] for line in lines))
    basket = next(file for file in result.files if file.path == "shop/basket.py")
    assert (basket.count, basket.line) == (2, 1)
    shown = shown_files(result.text, [file.path for file in result.files])
    assert ShownFile("shop/basket.py", (1, 4)) in shown
    assert "hidden" not in result.text and "gitdir" not in search(box, shop, query="gitdir worktrees").text


def test_path_pattern_and_k_narrow_it(box: Sandbox, shop: Made) -> None:
    def paths(**arguments: Any) -> set[str]:
        return {file.path for file in search(box, shop, query="basket total", **arguments).files}

    assert paths(path="tests") == {"tests/test_basket.py"} == paths(path="/repo/tests/test_basket.py")
    assert paths(path="*.txt") == {"notes.txt"}
    assert paths(pattern=r"^def \w+_tax\(") == {"shop/tax.py"}  # found by the pattern, whatever the query ranks first
    assert paths(pattern="def", path="tests") == {"tests/test_basket.py"}
    assert len(search(box, shop, query="basket total", k=1).text.split("\n")) == 1
    nothing = search(box, shop, query="basket", pattern="nowhere_at_all", path="shop")
    assert nothing.text == "[nothing found that matches the pattern in shop]" and nothing.status is ToolStatus.OK
    assert r"shop/odd\xe9.py:1-2: def odd_name()" in search(box, shop, query="odd_name").text.split("\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'query' is missing"),
        ({"query": "  "}, "'query' is empty"),
        ({"query": ["a"]}, "must be a string"),
        ({"query": "a" * 1001}, "at most 1000"),
        ({"query": "\ud800"}, "no valid Unicode"),
        ({"query": "a", "k": 0}, "from 1 to 50"),
        ({"query": "a", "k": 51}, "from 1 to 50"),
        ({"query": "a", "k": "many"}, "must be an integer"),
        ({"query": "a", "patern": "x"}, "did you mean 'pattern'?"),
        ({"query": "a", "pattern": "("}, "unclosed group"),
        ({"query": "a", "pattern": "a\nb"}, "line break"),
        ({"query": "a", "pattern": r"\w{900}{900}"}, "cannot be used"),
        ({"query": "a", "path": "../outside"}, "'..'"),
        ({"query": "a", "path": "/etc/passwd"}, "outside of the repository"),
        ({"query": "a", "path": ".git"}, "belongs to git"),
        ({"query": "a", "path": "link"}, "link to outside"),
        ({"query": "a", "path": "nowhere"}, "no such file or folder: nowhere"),
    ],
)
def test_what_cannot_be_asked_is_said(tree: Tree, arguments: dict[str, Any], words: str) -> None:
    (tree.root / "link").symlink_to(tree.outside)
    result = on(tree.root, Toolbox(tool_limits(names=NAMES)), **arguments)
    assert result.status is ToolStatus.MODEL_ERROR and words in result.text


HOSTILE = st.sampled_from(
    ["../outside", "/etc/passwd", ".git", "--pre=touch", "-e", "\0", "link", "(a+)+$", "*", "**", "", "[", "a" * 900,
     "{a,b", "!x", "~", "app.py", "def run", "\n", ".", r"\b", "SECRET", "tests/*", "?" * 500]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    arguments=st.fixed_dictionaries(
        {"query": HOSTILE}, optional={"k": st.integers(-2, 60), "path": HOSTILE, "pattern": HOSTILE}
    )
)
def test_whatever_is_asked_stays_inside_and_under_the_caps(hostile_tree: Path, arguments: dict[str, Any]) -> None:
    result = on(hostile_tree, _hostile_toolbox(), **arguments)
    assert 0 < len(result.text) <= 300 and result.status is not ToolStatus.INFRASTRUCTURE
    assert "SECRET =" not in result.text and "gitdir" not in result.text
    result.text.encode()


def _hostile_toolbox() -> Toolbox:
    return Toolbox(tool_limits(names=NAMES, max_chars=300, max_line_chars=40))


@pytest.fixture(scope="module")
def hostile_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "outside").mkdir()
    (folder / "outside" / "secret.py").write_text("SECRET = 1\n")
    root = folder / "tree"
    root.mkdir()
    (root / "app.py").write_text("def run():\n    pass\n" * 20)
    (root / "link.py").symlink_to(folder / "outside" / "secret.py")
    (root / "link").symlink_to(folder / "outside")
    (root / ".git").write_text("gitdir: /SECRET/place\n")
    return root


def test_each_cap_holds_and_says_so(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    for number in range(30):
        (root / f"needle{number}.py").write_text(
            f"def needle_{number}({', '.join(f'x{i}' for i in range(60))}):\n    pass\n"
        )
    limits = tool_limits(
        names=NAMES, max_chars=500, max_line_chars=60, search=search_settings(results=20, max_results=25)
    )
    result = on(root, Toolbox(limits), query="needle")
    first, *rows = result.text.split("\n")
    assert first == f"[first {len(rows)} of 20 results]" and len(result.text) <= 500 and result.truncated
    assert all(len(row.partition(": ")[2]) <= 60 for row in rows)
    assert len(result.files) == 20
    assert "at most 25" in str(Toolbox(limits).schemas()[0])
    fewer = tool_limits(names=NAMES, search=search_settings(results=20, max_results=4))
    assert len(on(root, Toolbox(fewer), query="needle").files) == 4


def test_a_pattern_that_matches_every_line_is_bounded(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegrep.index.search._PATTERN_BYTES", 100)
    result = on(tree.root, Toolbox(tool_limits(names=NAMES)), query="run", pattern=".")
    assert result.status is ToolStatus.MODEL_ERROR and "too many lines" in result.text


def test_twenty_calls_on_a_fresh_tree_index_it_once(box: Sandbox, shop: Made, digested: list[str]) -> None:
    async def main() -> list[list[ToolResult]]:
        turns = [
            [ToolCall("search", {"query": f"basket {n}"}), ToolCall("search", {"query": "tax"})] for n in range(20)
        ]
        return await asyncio.gather(*(box.run_turn("o/n", shop.commits[0], turn) for turn in turns))

    results = [result for turn in asyncio.run(main()) for result in turn]
    assert {result.status for result in results} == {ToolStatus.OK}
    assert len(digested) == len(set(digested)) == 5
    assert box.stats()["cache/misses"] == 21  # the query that all have in common is answered once
    assert search(box, shop, query="tax").text == results[1].text
    assert box.stats()["cache/misses"] == 21
    search(box, shop, query="tax", k=1)
    assert box.stats()["cache/misses"] == 22


def test_a_further_commit_and_process_index_only_what_changed(tmp_path: Path, shop: Made, digested: list[str]) -> None:
    search(sandbox(tmp_path, shop), shop, query="basket")
    digested.clear()
    other = sandbox(tmp_path, shop)
    assert "sales_tax" in search(other, shop, query="sales_tax").text and not digested
    assert "discount" in search(other, shop, commit=1, query="discount").text
    assert digested == ["shop/tax.py"]
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["o__n"]


def test_a_tree_that_changes_underneath_is_noticed(tree: Tree) -> None:
    toolbox = Toolbox(tool_limits(names=NAMES))
    assert "src/app.py:4-5" in on(tree.root, toolbox, query="run").text
    with (tree.root / "src/app.py").open("a") as file:
        file.write("\n\ndef brand_new():\n    pass\n")
    assert "def brand_new()" in on(tree.root, toolbox, query="brand_new").text
    (tree.root / "src/app.py").unlink()
    assert "src/app.py" not in on(tree.root, toolbox, query="brand_new run").text


@pytest.mark.parametrize("kind", list(INDEXES))
def test_any_index_can_stand_behind_it(kind: str, tree: Tree) -> None:
    toolbox = Toolbox(tool_limits(names=NAMES, exclude_tests=True, search=search_settings(index=kind)))
    result = on(tree.root, toolbox, query="run the app")
    assert result.status is ToolStatus.OK and "src/app.py" in {file.path for file in result.files}
    assert "tests/test_app.py" not in result.text
    assert on(tree.root, toolbox, query="run", path="tests").text == "[nothing found in tests, test files left out]"


def test_only_an_index_can_stand_behind_it() -> None:
    assert set(get_args(get_type_hints(SearchToolConfig)["index"])) == {*INDEXES, "colgrep"}
    for kind in ("oracle", "predictions", "agent"):
        with pytest.raises(ValidationError):
            search_settings(index=kind)


def test_colgrep_can_stand_behind_it(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ["PATH"]
    calls = install(tmp_path / "bin", monkeypatch, [unit(tree.root / "src/app.py", line=9, end_line=10)])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{path}")
    toolbox = Toolbox(
        tool_limits(names=NAMES, search=search_settings(index="colgrep")), index_folder=tmp_path / "index"
    )
    assert on(tree.root, toolbox, query="run the app").text == "src/app.py:9-10: def run(self) in App"
    assert str(tmp_path / "index" / "colgrep") in calls.read_text()
    monkeypatch.setenv("PATH", path)
    other = Toolbox(toolbox.limits, index_folder=tmp_path / "index")
    missing = on(tree.root, other, query="run")
    assert missing.status is ToolStatus.INFRASTRUCTURE and "colgrep is not installed" in missing.text


def test_the_model_is_told_what_is_accepted() -> None:
    (taken,) = Toolbox(tool_limits(names=["search"])).schemas()
    (told,) = schemas_of(["search"])
    parameters = taken["function"]["parameters"]
    assert (list(told.parameters), list(told.required)) == (list(parameters["properties"]), parameters["required"])


def test_an_empty_tree_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = on(tmp_path / "empty", Toolbox(tool_limits(names=NAMES)), query="anything")
    assert (result.status, result.text) == (ToolStatus.OK, "[nothing found in the repository]")


def test_a_call_does_not_wait_for_a_slow_index_and_others_go_on(
    tmp_path: Path, shop: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sandbox(tmp_path, shop, concurrency=1, search=search_settings(timeout=0.2))
    goes_on, real = threading.Event(), TreeIndexes._build

    def slow(self: TreeIndexes, root: Path) -> Any:
        goes_on.wait(60)
        return real(self, root)

    monkeypatch.setattr(TreeIndexes, "_build", slow)
    calls = [ToolCall("search", {"query": "basket"}), ToolCall("grep", {"pattern": "Basket"})]
    late, grep = asyncio.run(box.run_turn("o/n", shop.commits[0], calls))
    assert grep.status is ToolStatus.OK  # with one place for all calls
    assert late.status is ToolStatus.INFRASTRUCTURE and "timed out after 0.2s" in late.text
    assert "still being built" in late.text
    goes_on.set()
    while (result := search(box, shop, query="basket")).status is not ToolStatus.OK:
        time.sleep(0.05)
    assert "shop/basket.py" in result.text  # it was not kept as an answer
    box.close()


def test_an_index_that_cannot_be_kept_is_the_machines_fault(tmp_path: Path, tree: Tree) -> None:
    (tmp_path / "file").write_text("")
    result = on(tree.root, Toolbox(tool_limits(names=NAMES), index_folder=tmp_path / "file"), query="run")
    assert result.status is ToolStatus.INFRASTRUCTURE and "cannot be written" in result.text


def test_few_trees_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegrep.sandbox.tree_indexes._MOST_UNITS", 2)
    indexes = TreeIndexes(tmp_path / "index", "bm25", with_tests=True, ripgrep=None)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text(f"def {name}():\n    pass\n")
    for name in ("a", "b", "c", "c", "a"):
        indexes.of(tmp_path / name).result(30)
        assert len(indexes._kept) <= 2
    assert [path.name for path in indexes._kept] == ["c", "a"]


def test_a_kill_while_indexing_leaves_a_usable_folder(tmp_path: Path, digested: list[str]) -> None:
    root, index = tmp_path / "tree", tmp_path / "index"
    root.mkdir()
    for number in range(200):
        (root / f"m{number:03}.py").write_text(f"def work_{number}():\n    return {number}\n" * 20)
    code = (
        "import sys; from pathlib import Path; import codegrep.index.store as t; t._FLUSHED = 10\n"
        "from codegrep.sandbox.tree_indexes import TreeIndexes\n"
        "TreeIndexes(Path(sys.argv[2]), 'hybrid', with_tests=True, ripgrep=None).of(Path(sys.argv[1])).result()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(root), str(index)], cwd=Path(__file__).parents[2])
    while process.poll() is None and len(list(index.glob("*/*/*.arrow"))) < 3:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    result = on(root, Toolbox(tool_limits(names=NAMES), SearchPrograms(), index), query="work_7")
    assert "m007.py:" in result.text
    assert 0 < len(digested) <= 170  # it went on where the other was ended
