"""From configuration to retrievers: indexes, bounds and published answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codegrep.config import RetrieverConfig
from codegrep.errors import CodegrepError, ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.retrievers.registry import identity, open_retriever, runs_a_model, uses_gold
from codegrep.retrievers.retriever import DEPTH

ISSUE = Issue("i1", "o/r", "c" * 40, "parse_header drops the charset", gold_files=("pkg/headers.py", "pkg/other.py"))
INDEXED = "codegrep.retrievers.indexed.Indexed"
PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "agent_predictions"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "pkg").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "pkg" / "headers.py").write_text("def parse_header(text):\n    charset = text\n    return charset\n")
    for number in range(30):
        (folder / "pkg" / f"m{number}.py").write_text(f"def header_{number}(text):\n    return text\n")
    (folder / "pkg" / "other.py").write_text("def unrelated():\n    return None\n")
    (folder / "tests" / "test_headers.py").write_text("def test_parse_header():\n    parse_header('charset')\n")
    return folder


def opened(of: str, folder: Path, evaluation: bool = True, **args: Any) -> Any:
    return open_retriever(RetrieverConfig(name="row", kind=of, args=args), folder, evaluation=evaluation)


@pytest.mark.parametrize("index", ["bm25", "static", "reciprocal", "hybrid"])
def test_every_index_ranks_files(index: str, tree: Path, tmp_path: Path) -> None:
    retriever = opened(INDEXED, tmp_path / "index", index=index)
    answer = retriever.retrieve(ISSUE, tree)
    assert answer.files[0] == "pkg/headers.py" and len(answer.files) <= DEPTH
    assert "tests/test_headers.py" not in answer.files
    assert answer.detail["index_bytes"] > 0 and answer.detail["documents"] >= 32
    assert len(identity(retriever)) > 20


def test_a_tree_that_changes_is_indexed_again(tree: Path, tmp_path: Path) -> None:
    retriever = opened(INDEXED, tmp_path / "index", index="hybrid")
    assert retriever.retrieve(ISSUE, tree).files[0] == "pkg/headers.py"
    (tree / "pkg" / "headers.py").rename(tree / "pkg" / "moved.py")
    assert retriever.retrieve(ISSUE, tree).files[0] == "pkg/moved.py"


def test_other_files_and_tests_on_request(tree: Path, tmp_path: Path) -> None:
    (tree / "headers.go").write_text("package headers\n\nfunc ParseHeader(charset string) string { return charset }\n")
    go = opened(INDEXED, tmp_path / "index", index="hybrid", suffixes=[".go"])
    assert go.retrieve(ISSUE, tree).files == ("headers.go",)
    with_tests = opened(INDEXED, tmp_path / "index", index="bm25", include_tests=True)
    assert "tests/test_headers.py" in with_tests.retrieve(ISSUE, tree).files


def test_an_empty_tree(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for index in ("bm25", "static", "reciprocal", "hybrid"):
        answer = opened(INDEXED, tmp_path / "index", index=index).retrieve(ISSUE, tmp_path / "tree")
        assert answer.files == () and answer.detail["documents"] == 0


def test_the_oracle_gives_the_gold_of_the_first_ten(tree: Path, tmp_path: Path) -> None:
    args = {"kind": INDEXED, "args": {"index": "bm25"}}
    oracle = opened("codegrep.retrievers.bounds.Oracle", tmp_path / "index", **args)
    assert oracle.retrieve(ISSUE, tree).files == ("pkg/headers.py",)
    settings = RetrieverConfig(name="row", kind="codegrep.retrievers.bounds.Oracle", args=args)
    assert uses_gold(settings) and not runs_a_model(settings)
    assert not uses_gold(RetrieverConfig(name="row", kind=INDEXED, args={"index": "bm25"}))
    with pytest.raises(ConfigError, match="row is a row of evaluations"):
        opened("codegrep.retrievers.bounds.Oracle", tmp_path / "index", evaluation=False, **args)
    with pytest.raises(ConfigError, match="there is no index 'bm26'"):
        opened("codegrep.retrievers.bounds.Oracle", tmp_path, kind=INDEXED, args={"index": "bm26"})


def published(tmp_path: Path, *rows: object, column: str = "model_patch") -> Any:
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return opened("codegrep.retrievers.predictions.Predictions", tmp_path, path=str(file), column=column)


PATCH = """diff --git a/pkg/headers.py b/pkg/headers.py
--- a/pkg/headers.py
+++ b/pkg/headers.py
@@ -1 +1 @@
-x
+y
diff --git a/tests/test_headers.py b/tests/test_headers.py
--- a/tests/test_headers.py
+++ b/tests/test_headers.py
@@ -1 +1 @@
-x
+y
"""


def test_published_patches_and_lists_are_answers(tmp_path: Path) -> None:
    patches = published(tmp_path, {"instance_id": "i1", "model_patch": PATCH}, {"instance_id": "i2", "model_patch": ""})
    assert patches.retrieve(ISSUE, tmp_path).files == ("pkg/headers.py",)
    before = identity(patches)
    rows = ({"instance_id": "i1", "found": ["b.py", "a.py", "b.py"]}, "no json", {"instance_id": "i3"})
    lists = published(tmp_path, *rows, column="found")
    assert lists.retrieve(ISSUE, tmp_path).files == ("b.py", "a.py")
    other = Issue("i9", "o/r", "c" * 40, "x")
    assert lists.retrieve(other, tmp_path).files == () and lists.retrieve(other, tmp_path).detail == {"unanswered": 1}
    assert identity(lists) != before


def test_wrong_predictions_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="have no row with instance_id and model_patch"):
        identity(published(tmp_path, {"instance_id": "i1", "patch": ""}))
    gone = opened("codegrep.retrievers.predictions.Predictions", tmp_path, path=str(tmp_path / "gone"))
    with pytest.raises(DataError, match="cannot be read"):
        identity(gone)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    binary = opened("codegrep.retrievers.predictions.Predictions", tmp_path, path=str(tmp_path / "binary"))
    with pytest.raises(CodegrepError):
        identity(binary)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published answers are not here")
@pytest.mark.parametrize(
    ("file", "column", "most"),
    [("locagent_claude35_lite.jsonl", "found_files", 300), ("openhands_patch_files_verified.jsonl", "", 500)],
)
def test_real_published_answers(file: str, column: str, most: int, tmp_path: Path) -> None:
    path = PUBLISHED / file
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    column = column or "generated_non_test_files"
    retriever = opened("codegrep.retrievers.predictions.Predictions", tmp_path, path=str(path), column=column)
    assert 200 < len(rows) <= most
    for row in rows:
        issue = Issue(row["instance_id"], "o/r", "c" * 40, "x")
        assert list(retriever.retrieve(issue, tmp_path).files) == list(dict.fromkeys(row[column] or []))
