from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.errors import DataError
from codegrep.issues.repositories import find_repository, list_repositories
from codegrep.issues.swe_bench import SWEBench
from codegrep.issues.swe_bench_rows import RowError, read_fields

from .conftest import Builder

BASE = "0123456789abcdef0123456789abcdef01234567"
PATCH = "diff --git a/src/m.py b/src/m.py\n--- a/src/m.py\n+++ b/src/m.py\n@@ -3,3 +3,3 @@\n a\n-b\n+c\n d\n"
TEST_PATCH = PATCH.replace("src/m.py", "tests/test_m.py")
DOC_PATCH = PATCH.replace("src/m.py", "README.md")


def row(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "instance_id": f"own__er-{number}",
        "repo": "own/er",
        "base_commit": BASE,
        "problem_statement": f"It fails {number}",
        "patch": PATCH,
        "test_patch": TEST_PATCH,
        "created_at": "2024-01-01T00:00:00Z",
        "FAIL_TO_PASS": ["t"],
    } | changes


@pytest.fixture
def clones(build: Callable[[str], Builder], tmp_path: Path) -> Path:
    build("clones/own__er").commit("start", {"a.py": "x\n"})
    return tmp_path / "clones"


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in rows) + "\n")
    return str(path)


def test_good_rows(tmp_path: Path, clones: Path) -> None:
    result = SWEBench(
        write(tmp_path / "i.jsonl", [row(1), row(2, patch=PATCH + TEST_PATCH + DOC_PATCH)]), str(clones)
    ).load()
    assert [issue.gold_files for issue in result.issues] == [("src/m.py",), ("src/m.py",)]
    first = result.issues[0]
    assert (first.repo, first.base_commit, first.source) == ("own/er", BASE, "swe_bench")
    assert [(found.path, found.start, found.end) for found in result.issues[1].gold_ranges] == [("src/m.py", 4, 4)]
    assert result.repositories["own/er"].local == clones / "own__er"
    assert result.repositories["own/er"].url is None
    assert not result.skipped


def test_gold_options(tmp_path: Path, clones: Path) -> None:
    path = write(tmp_path / "i.jsonl", [row(1, patch=PATCH + TEST_PATCH + DOC_PATCH)])
    assert SWEBench(path, str(clones), gold_tests=True).load().issues[0].gold_files == ("src/m.py", "tests/test_m.py")
    assert SWEBench(path, str(clones), gold_suffixes=[".md"]).load().issues[0].gold_files == ("README.md",)
    with pytest.raises(DataError, match="list"):
        SWEBench(path, str(clones), gold_suffixes=".py")


def test_every_form_gives_the_same_issues(tmp_path: Path, clones: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = [row(1), row(2)]
    folder = tmp_path / "data"
    folder.mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "test-00000-of-00001.parquet")
    parquet.write_table(pyarrow.Table.from_pylist([row(9)]), folder / "training.parquet")
    (tmp_path / "i.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    (tmp_path / "list.json").write_text(json.dumps(rows))
    (tmp_path / "byid.json").write_text(json.dumps({one["instance_id"]: one for one in rows}))
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, rows)))
    expected = SWEBench(write(tmp_path / "i.jsonl", rows), str(clones)).load().issues
    for name in ("i.jsonl.gz", "list.json", "byid.json", "lines.json", "data/test-00000-of-00001.parquet"):
        assert SWEBench(str(tmp_path / name), str(clones)).load().issues == expected, name
    assert SWEBench(str(folder), str(clones), split="test").load().issues == expected
    assert len(SWEBench(str(folder), str(clones)).load().issues) == 3
    with pytest.raises(DataError, match="of split 'dev'"):
        SWEBench(str(folder), str(clones), split="dev").load()


def test_multi_swe_bench(tmp_path: Path, clones: Path) -> None:
    made = {
        "org": "own",
        "repo": "er",
        "number": 7,
        "title": "Fix parser",
        "body": "Tells the fix",
        "base": {"label": "x", "ref": "main", "sha": BASE},
        "resolved_issues": [
            {"number": 3, "title": "Parser hangs", "body": "on empty input"},
            {"number": 4, "title": None, "body": ""},
        ],
        "fix_patch": PATCH,
        "test_patch": TEST_PATCH,
    }
    path = write(
        tmp_path / "m.jsonl", [made, made | {"number": 8, "resolved_issues": []}, made | {"number": 9, "base": {}}]
    )
    result = SWEBench(path, str(clones)).load()
    assert [issue.instance_id for issue in result.issues] == ["own__er-7", "own__er-8"]
    assert result.issues[0].problem_statement == "Parser hangs\n\non empty input"
    assert result.issues[1].problem_statement == "Fix parser\n\nTells the fix"
    assert "m.jsonl line 3: field sha is missing" in map(str, result.broken)


BROKEN: list[tuple[Any, str]] = [
    ("{not json", "broken JSON"),
    ("[1]", "expected a JSON object"),
    (json.dumps(row(3))[:-20], "broken JSON"),
    ({key: value for key, value in row(4).items() if key != "patch"}, "field patch is missing"),
    (row(5, patch=None), "field patch is missing"),
    (row(6, problem_statement=" \n"), "problem_statement"),
    (row(7, base_commit="main"), "no full commit hash"),
    (row(8, base_commit=BASE[:8]), "no full commit hash"),
    (row(9, base_commit=f"{BASE}\n--upload-pack=x"), "no full commit hash"),
    (row(10, repo="/etc/passwd"), "not of the form owner/name"),
    (row(11, repo="../x"), "not of the form owner/name"),
    (row(12, repo="a/.."), "not of the form owner/name"),
    (row(13, repo="--upload-pack=x/y"), "not of the form owner/name"),
    (row(14, instance_id="../../x"), "no plain identifier"),
    (row(15, patch="see the attachment"), "not a unified diff"),
    (row(16, patch=PATCH.replace("src/m.py", "../m.py")), "unsafe path"),
    (row(17, problem_statement=["a"]), "must be text"),
    ('{"a": ' * 2000, "broken JSON"),
]


@pytest.mark.parametrize(("bad", "reason"), BROKEN)
def test_broken_rows_are_counted_and_listed_and_good_ones_go_on(
    tmp_path: Path, clones: Path, bad: Any, reason: str
) -> None:
    result = SWEBench(write(tmp_path / "i.jsonl", [row(1), bad, row(2)]), str(clones)).load()
    assert [issue.instance_id for issue in result.issues] == ["own__er-1", "own__er-2"]
    assert result.skipped == Counter({"broken row": 1})
    assert result.broken[0].where == "i.jsonl line 2"
    assert reason in result.broken[0].reason


def test_duplicates_and_rows_without_gold(tmp_path: Path, clones: Path) -> None:
    rows = [
        row(1),
        row(1, problem_statement="again"),
        row(2, patch=TEST_PATCH),
        row(3, patch=""),
        row(4, patch=DOC_PATCH),
    ]
    result = SWEBench(write(tmp_path / "i.jsonl", rows), str(clones)).load()
    assert [issue.problem_statement for issue in result.issues] == ["It fails 1"]
    assert result.skipped == {
        "duplicate instance_id": 1,
        "no gold file that exists at the base commit": 2,
        "no gold patch": 1,
    }


def test_missing_repositories(tmp_path: Path, clones: Path) -> None:
    path = write(tmp_path / "i.jsonl", [row(1), row(2, repo="not/here"), row(3, repo="not/here")])
    result = SWEBench(path, str(clones)).load()
    assert len(result.issues) == 1
    assert result.skipped == {"repository not found": 2}
    assert result.broken[0].where == "not/here"
    cloned = SWEBench(path, str(clones), clone=True).load()
    assert cloned.repositories["not/here"].url == "https://github.com/not/here.git"
    only_missing = write(tmp_path / "j.jsonl", [row(2, repo="not/here")])
    with pytest.raises(DataError, match=r"not/here.*clone to true"):
        SWEBench(only_missing, str(clones)).load()


def test_data_that_cannot_be_used_at_all(tmp_path: Path, clones: Path) -> None:
    with pytest.raises(DataError, match="not found"):
        SWEBench(str(tmp_path / "nothing.jsonl"), str(clones)).load()
    with pytest.raises(DataError, match="no rows"):
        SWEBench(write(tmp_path / "e.jsonl", []), str(clones)).load()
    with pytest.raises(DataError, match=r"none of the 2 rows.*line 1: broken JSON"):
        SWEBench(write(tmp_path / "b.jsonl", ["{", "{"]), str(clones)).load()
    with pytest.raises(DataError, match="repositories"):
        SWEBench("x.jsonl")
    with pytest.raises(DataError, match="names no folder"):
        SWEBench(write(tmp_path / "i.jsonl", [row(1)]), str(tmp_path / "no")).load()
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(json.dumps(row(1)).encode())[:-9])
    with pytest.raises(DataError, match="cannot read"):
        SWEBench(str(tmp_path / "t.jsonl.gz"), str(clones)).load()
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="cannot read"):
        SWEBench(str(tmp_path / "t.parquet"), str(clones)).load()


def test_statement_that_names_gold_can_be_left_out(tmp_path: Path, clones: Path) -> None:
    rows = [
        row(1),
        row(2, problem_statement="see src/m.py"),
        row(3, problem_statement="in m.py"),
        row(4, problem_statement="am.py"),
    ]
    result = SWEBench(write(tmp_path / "i.jsonl", rows), str(clones), drop_statements_that_name_gold=True).load()
    assert [issue.instance_id for issue in result.issues] == ["own__er-1", "own__er-4"]


@pytest.mark.parametrize(
    "name", ["own__er", "own__er.git", "own+er", "own+er/repo", "own/er", "own/er.git", "er", "er.git"]
)
def test_folder_forms(build: Callable[[str], Builder], tmp_path: Path, name: str) -> None:
    made = build("origin")
    made.commit("start", {"a.py": "x\n"})
    target = tmp_path / "clones" / name
    made.git("clone", "-q", "--bare", str(made.folder), str(target))
    assert find_repository(tmp_path / "clones", "own/er") == target
    assert find_repository(tmp_path / "clones", "own/other") is None
    label = list_repositories(tmp_path / "clones")
    assert list(label.values()) == [target]
    assert name.startswith("er") or list(label) == ["own/er"]


def test_bundles(build: Callable[[str], Builder], tmp_path: Path) -> None:
    made = build("origin")
    made.commit("start", {"a.py": "x\n"})
    (tmp_path / "clones").mkdir()
    made.git("bundle", "create", "-q", str(tmp_path / "clones" / "own__er.bundle"), "main", "HEAD")
    (tmp_path / "clones" / "own__fake.bundle").write_text("no bundle")
    assert find_repository(tmp_path / "clones", "own/er") == tmp_path / "clones" / "own__er.bundle"
    assert find_repository(tmp_path / "clones", "own/fake") is None


def test_hub_id_is_tried_and_its_failure_is_one_line(clones: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    with pytest.raises(DataError, match="could not be loaded from the hub"):
        SWEBench("nobody/such-data-set", str(clones)).load()


def test_the_shared_issues(shared_data: Path, build: Callable[[str], Builder], tmp_path: Path) -> None:
    build("clones/pallets__flask").commit("start", {"a.py": "x\n"})
    result = SWEBench(str(shared_data / "instances.jsonl"), str(tmp_path / "clones"), clone=True).load()
    assert len(result.issues) == 230
    assert not result.broken
    assert Counter(issue.repo for issue in result.issues)["sympy/sympy"] == 130
    lite = SWEBench(str(shared_data / "instances.jsonl"), None, split="lite", clone=True).load()
    assert len(lite.issues) == 118
    with pytest.raises(DataError, match="Known: lite, lite-dev, verified"):
        SWEBench(str(shared_data / "instances.jsonl"), None, split="tset", clone=True).load()


_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from([BASE, "own/er", PATCH])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["sha", "title", "body"]), inner)
    ),
    max_leaves=6,
)


@given(
    st.sampled_from(
        [row(), {"org": "own", "repo": "er", "number": 1, "base": {"sha": BASE}, "title": "t", "fix_patch": PATCH}]
    ),
    st.data(),
)
def test_rows_of_any_kind(start: dict[str, Any], data: st.DataObject) -> None:
    keys = st.sampled_from([*start, "resolved_issues", "body"])
    made = start | data.draw(st.dictionaries(keys, _VALUES, max_size=3))
    try:
        fields = read_fields(made)
    except RowError:
        return
    assert ".." not in fields.repo and fields.repo.count("/") == 1 and "/" not in fields.instance_id
    fields.problem_statement.encode()
