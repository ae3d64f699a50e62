"""Embedding models as retrievers, with real models of a few thousand random weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegrep.errors import CodegrepError, DataError, ModelError
from codegrep.issues.issue import Issue
from codegrep.retrievers import dense
from codegrep.retrievers.dense import Dense, Embedded, LateInteraction
from codegrep.retrievers.files import ranked_files
from codegrep.retrievers.indexed import indexed_tree
from codegrep.retrievers.vectors import FileVectors, VectorStore, best_of_units
from tests.retrievers.tiny_models import make_bert, make_late

ISSUE = Issue("i1", "o/r", "c" * 40, "alpha returns the wrong number", gold_files=("pkg/a.py",))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_late(folder / "late", make_bert(folder / "bert"))
    make_bert(folder / "wide", width=32)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "a.py").write_text("def alpha():\n    return 1\n\n\ndef beta():\n    return 2\n")
    (folder / "pkg" / "b.py").write_text("class Gamma:\n    def run(self):\n        return self\n")
    (folder / "pkg" / "test_a.py").write_text("def test_alpha():\n    assert alpha() == 1\n")
    return folder


def dense_of(models: Path, tmp_path: Path, **more: Any) -> Dense:
    return Dense(str(models / "bert"), folder=tmp_path / "index", **more)


def counted(retriever: Embedded) -> list[str]:
    """The texts that are embedded from now on, without queries."""
    texts: list[str] = []
    encode = retriever.embed

    def embed(some: Sequence[str], *, query: bool) -> Any:
        texts.extend([] if query or list(some) == ["dimension"] else some)
        return encode(some, query=query)

    retriever.embed = embed  # type: ignore[method-assign]
    return texts


@pytest.mark.parametrize(("kind", "model"), [(Dense, "bert"), (LateInteraction, "late")])
def test_files_are_ranked_by_the_models_own_similarity(
    kind: type[Embedded], model: str, models: Path, tree: Path, tmp_path: Path
) -> None:
    retriever = kind(str(models / model), folder=tmp_path / "index")
    answer = retriever.retrieve(ISSUE, tree)
    assert set(answer.files) == {"pkg/a.py", "pkg/b.py"}
    assert answer.detail["documents"] == 4 and answer.detail["index_bytes"] > 0
    indexed = indexed_tree(tmp_path / "index", "o/r", tree, ranked_files(tree, include_tests=False))
    index = retriever.index("o/r", tree, indexed)
    query = retriever.embed([ISSUE.problem_statement], query=True)
    other = kind(str(models / model), folder=tmp_path / "other")
    texts = counted(other)
    other.retrieve(ISSUE, tree)
    units = other.embed(list(texts), query=False)
    wanted = [float((one @ query[0].T).max(axis=0).sum()) for one in units]
    found = index.scores(ISSUE.problem_statement, np.ones(2, bool))
    assert found == pytest.approx(wanted, abs=0.01 * len(query[0]))  # vectors are kept as 16-bit numbers
    (hit,) = index.search(ISSUE.problem_statement, 1, path="pkg/b.py")
    assert hit.unit.path == "pkg/b.py" and hit.unit.end <= 3


def test_nothing_is_embedded_twice(models: Path, tree: Path, tmp_path: Path) -> None:
    first = dense_of(models, tmp_path)
    texts = counted(first)
    before = first.retrieve(ISSUE, tree).files
    assert len(texts) == 4 and texts[0].startswith("pkg/a.py\nalpha\ndef alpha():")
    assert first.retrieve(ISSUE, tree).files == before and len(texts) == 4

    (tree / "pkg" / "c.py").write_text("def delta():\n    return 4\n")
    second = dense_of(models, tmp_path)  # another process
    further = counted(second)
    second.retrieve(ISSUE, tree)
    assert [text.split("\n")[0] for text in further] == ["pkg/c.py"]

    (tree / "pkg" / "c.py").unlink()
    prompted = dense_of(models, tmp_path, document_prompt="code: ")
    again = counted(prompted)
    prompted.retrieve(ISSUE, tree)
    assert len(again) == 4 and prompted.identity() != first.identity()
    assert dense_of(models, tmp_path).retrieve(ISSUE, tree).files == before


def test_a_killed_process_leaves_what_it_had_finished(
    models: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "_FLUSHED", 2)
    killed = dense_of(models, tmp_path)
    encode: Callable[..., Any] = killed.embed

    def embed(some: Sequence[str], *, query: bool) -> Any:
        if any("Gamma" in text for text in some):
            raise KeyboardInterrupt
        return encode(some, query=query)

    killed.embed = embed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        killed.retrieve(ISSUE, tree)
    (segment,) = (tmp_path / "index").rglob("vectors-*/*.arrow")
    segment.with_name("torn.tmp").write_bytes(segment.read_bytes()[:100])  # killed while it wrote
    going_on = dense_of(models, tmp_path)
    texts = counted(going_on)
    assert set(going_on.retrieve(ISSUE, tree).files) == {"pkg/a.py", "pkg/b.py"}
    assert {text.split("\n")[0] for text in texts} == {"pkg/b.py"}


def test_vectors_of_another_model_are_refused(models: Path, tree: Path, tmp_path: Path) -> None:
    dense_of(models, tmp_path).retrieve(ISSUE, tree)
    (segment,) = (tmp_path / "index").rglob("vectors-*/*.arrow")
    with pytest.raises(
        DataError, match=r"cannot be used: it is of .*'dimension': 16.*, the model is .*'dimension': 32"
    ):
        VectorStore(segment.parent, segment.parent.name.removeprefix("vectors-"), 32)
    with pytest.raises(DataError, match="cannot be used"):
        VectorStore(segment.parent, "another", 16)
    segment.write_bytes(b"no arrow")
    with pytest.raises(DataError, match="Remove"):
        dense_of(models, tmp_path).retrieve(ISSUE, tree)


def test_many_files_become_one(tmp_path: Path) -> None:
    store = VectorStore(tmp_path, "m", 2)
    for number in range(70):
        vectors = np.full((1, 2), number, np.float16)
        store.add({f"k{number}": FileVectors(np.array([1], np.int32), vectors)})
    VectorStore(tmp_path, "m", 2)
    assert len(list(tmp_path.glob("*.arrow"))) == 1
    assert VectorStore(tmp_path, "m", 2)["k69"].vectors.tolist() == [[69.0, 69.0]]


def test_late_interaction_by_hand() -> None:
    files = [
        FileVectors(np.array([2, 1], np.int32), np.array([[1, 0], [0, 1], [0.5, 0.5]], np.float16)),
        FileVectors(np.array([1], np.int32), np.array([[-1, 0]], np.float16)),
    ]
    query = np.array([[1, 0], [0, 2]], np.float32)
    for chunk in (1, 100):
        assert best_of_units(files, query, chunk).tolist() == [3.0, 1.5, -1.0]
    assert best_of_units([], query).tolist() == []


def test_wrong_models_are_one_line(models: Path, tree: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(models / "bert", broken)
    (broken / "tokenizer.json").write_text("{}")
    for name, said in (
        (str(tmp_path / "gone"), "does not exist"),
        ("provided:nothing", "there is no provided model 'nothing'"),
        (str(tree), "has no config.json"),
        (str(broken), "cannot be loaded for embedding"),
    ):
        with pytest.raises(ModelError) as caught:
            Dense(name, folder=tmp_path / "index").retrieve(ISSUE, tree)
        assert said in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ModelError):
        Dense(str(tmp_path / "gone"), folder=tmp_path / "index").identity()


def test_another_model_in_the_same_folder_has_an_identity_of_its_own(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models / "bert", folder)
    before = Dense(str(folder), folder=tmp_path).identity()
    assert Dense(str(models / "bert"), folder=tmp_path).identity() == before
    shutil.rmtree(folder)
    make_bert(folder, seed=1)
    assert Dense(str(folder), folder=tmp_path).identity() != before


def test_odd_trees_have_a_bounded_answer(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    retriever = dense_of(models, tmp_path)
    assert retriever.retrieve(ISSUE, empty).files == ()
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "latin.py").write_bytes("def grüße():\n    return 'ß'\n".encode("latin-1"))
    (odd / "utf16.py").write_bytes("def alpha():\n    return 1\n".encode("utf-16"))
    (odd / "binary.py").write_bytes(b"\x00\x01" * 4000)
    (odd / "blank.py").write_text("\n\n")
    (odd / "generated.py").write_text("".join(f"value_{number} = {number}\n" for number in range(250_000)))
    answer = retriever.retrieve(ISSUE, odd)
    assert set(answer.files) == {"latin.py", "utf16.py", "generated.py"} and answer.detail["documents"] < 500
    monkeypatch.setattr(dense, "MAX_UNITS", 3)
    with pytest.raises(CodegrepError, match="functions and classes; 3 can be searched"):
        retriever.retrieve(ISSUE, odd)
