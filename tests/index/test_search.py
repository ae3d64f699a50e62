"""Indexes of small trees: what each ranking finds, filters, and what is kept of a tree."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import codegrep.index.store as store_module
from codegrep.errors import DataError, RepositoryError
from codegrep.index.okapi import Okapi
from codegrep.index.search import INDEXES, Bm25Index, HybridIndex, StaticIndex
from codegrep.index.static import StaticModel, load_static
from codegrep.index.store import digest_files
from codegrep.index.tree import SourceFile, TreeIndexer, folder_files
from tests.index.made_models import hand_model

FILES = {
    "pkg/urls.py": "def parse_url(text):\n    return text.split('/')\n\n\nclass Url:\n    pass\n",
    "pkg/files.py": "def load_file(path):\n    '''Read a file.'''\n    return path\n",
    "pkg/other.py": "def unrelated():\n    return 3\n",
    "tests/test_urls.py": "from pkg.urls import parse_url\n\n\ndef test_parse_url():\n    assert parse_url('a')\n",
    "notes.md": "How to parse a file.\n",
    "data.json": '{"parse": "url"}',
    ".git/config": "parse url",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "tree"


@pytest.fixture
def indexer(tmp_path: Path) -> TreeIndexer:
    return TreeIndexer(tmp_path / "index", hand_model())


def test_bm25_ranks_units(root: Path, indexer: TreeIndexer) -> None:
    hits = Bm25Index(indexer.index("o/n", folder_files(root))).search("parse_url", 3)
    first = hits[0].unit
    assert (first.path, first.name, first.start, first.end) == ("pkg/urls.py", "parse_url", 1, 2)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert "data.json" not in {hit.unit.path for hit in hits}


def test_static_vectors_find_other_words_for_it(root: Path, indexer: TreeIndexer) -> None:
    tree = indexer.index("o/n", folder_files(root))
    assert not Bm25Index(tree).search("address", 3)
    assert StaticIndex(tree).search("address", 1)[0].unit.path == "pkg/urls.py"
    assert StaticIndex(tree).search("unheard", 3) == []


@pytest.mark.parametrize("name", list(INDEXES))
def test_every_index_filters_by_path_and_pattern(name: str, root: Path, indexer: TreeIndexer) -> None:
    ripgrep = shutil.which("rg")
    tree = indexer.index("o/n", folder_files(root))
    if name == "hybrid":
        load_static()  # it stands on the shipped data
    index = INDEXES[name](tree, root, ripgrep)
    assert {hit.unit.path for hit in index.search("parse url", 9, path="tests")} == {"tests/test_urls.py"}
    assert {hit.unit.path for hit in index.search("parse file", 9, path="*.md")} == {"notes.md"}
    assert index.search("parse url", 9, path="nowhere") == []
    if ripgrep:
        hits = index.search("parse url", 9, pattern=r"split\(")
        assert [(hit.unit.path, hit.unit.name) for hit in hits] == [("pkg/urls.py", "parse_url")]
        with pytest.raises(ValueError, match="unclosed"):
            index.search("parse", 9, pattern="(")


def test_hybrid_scores_a_file_by_its_best_unit(root: Path, indexer: TreeIndexer) -> None:
    index = HybridIndex(indexer.index("o/n", folder_files(root)))
    files = dict(index.rank_files("parse_url is wrong", 5))
    best = {}
    for hit in index.search("parse_url is wrong", 50):
        best[hit.unit.path] = max(best.get(hit.unit.path, -np.inf), hit.score)
    assert files == {path: best[path] for path in files}
    assert next(iter(files)) == "pkg/urls.py"


@pytest.mark.parametrize("name", list(INDEXES))
def test_an_empty_tree_finds_nothing(name: str, tmp_path: Path, indexer: TreeIndexer) -> None:
    index = INDEXES[name](indexer.index("o/n", []))
    assert index.search("parse", 3) == []
    assert index.rank_files("parse", 3) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="there is no folder"):
        folder_files(tmp_path / "gone")


def test_files_have_the_hash_that_git_gives_them(root: Path) -> None:
    given = subprocess.run(["git", "hash-object", "pkg/urls.py"], cwd=root, capture_output=True, text=True, check=True)
    assert {f.path: f.blob for f in folder_files(root)}["pkg/urls.py"] == given.stdout.strip()
    assert hashlib.sha1(b"").hexdigest() not in {f.blob for f in folder_files(root)}


def count_digests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    digested: list[str] = []
    real = store_module.digest_files

    def counting(files: list[tuple[str, bytes]], model: StaticModel) -> object:
        digested.extend(path for path, _ in files)
        return real(files, model)

    monkeypatch.setattr(store_module, "digest_files", counting)
    return digested


def test_only_changed_files_are_embedded(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digested = count_digests(monkeypatch)
    first = TreeIndexer(tmp_path / "index", hand_model()).index("o/n", folder_files(root))
    assert len(digested) == 5
    digested.clear()
    (root / "pkg/other.py").write_text("def load_url():\n    pass\n", encoding="utf-8")
    indexer = TreeIndexer(tmp_path / "index", hand_model())  # another process
    second = indexer.index("o/n", folder_files(root))
    assert digested == ["pkg/other.py"]
    same = [n for n in range(len(second)) if second.unit(n).path != "pkg/other.py"]
    assert [second.unit(n) for n in same] == [
        u for n in range(len(first)) if (u := first.unit(n)).path != "pkg/other.py"
    ]
    assert Bm25Index(second).search("load_url", 1)[0].unit.path == "pkg/other.py"


def test_a_killed_process_loses_the_last_blobs_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_FLUSHED", 2)
    digested = count_digests(monkeypatch)
    files = folder_files(root)

    def killed() -> bytes:
        raise KeyboardInterrupt

    broken = [*files[:4], SourceFile("zz.py", "0" * 40, killed)]
    with pytest.raises(KeyboardInterrupt):
        TreeIndexer(tmp_path / "index", hand_model()).index("o/n", broken)
    (folder,) = (tmp_path / "index" / "o__n").iterdir()
    (folder / "half.tmp").write_bytes(b"half")  # what a kill inside a write leaves
    digested.clear()
    TreeIndexer(tmp_path / "index", hand_model()).index("o/n", files)
    assert digested == [files[4].path]


def test_a_second_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(f"a{n}.py", f"def f{n}():\n    return {n}\n".encode()) for n in range(20)] + [("b.bin", b"\0")]
    alone = digest_files(files, hand_model())
    monkeypatch.setattr("codegrep.index.digest._MANY", 2)
    together = digest_files(files, hand_model())
    for one, other in zip(alone, together, strict=True):
        assert one.meta == other.meta
        assert one.words.terms.tolist() == other.words.terms.tolist()
        assert one.words.starts.tolist() == other.words.starts.tolist()


def test_many_small_files_of_an_index_are_joined(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_FLUSHED", 1)
    monkeypatch.setattr("codegrep.index.store._MAX_SEGMENTS", 3)
    digested = count_digests(monkeypatch)
    for _ in range(2):
        tree = TreeIndexer(tmp_path / "index", hand_model()).index("o/n", folder_files(root))
    assert len(digested) == 5
    (folder,) = (tmp_path / "index" / "o__n").iterdir()
    assert len(list(folder.iterdir())) <= 3
    assert Bm25Index(tree).search("parse_url", 1)[0].unit.name == "parse_url"


def test_another_model_has_an_index_of_its_own(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digested = count_digests(monkeypatch)
    for version in ("hand", "other"):
        TreeIndexer(tmp_path / "index", hand_model(version)).index("o/n", folder_files(root))
    assert len(digested) == 10


def test_broken_index_files_are_named(root: Path, tmp_path: Path) -> None:
    TreeIndexer(tmp_path / "index", hand_model()).index("o/n", folder_files(root))
    (folder,) = (tmp_path / "index" / "o__n").iterdir()
    (file,) = folder.iterdir()
    model = hand_model()
    wide = type(model)(model.terms, np.hstack([model.vectors, model.vectors]), model.query_weights, model.version)
    with pytest.raises(DataError, match=r"vectors of 8 dimensions where the model has 16.*Remove"):
        TreeIndexer(tmp_path / "index", wide).index("o/n", [])
    file.write_bytes(b"no arrow")
    with pytest.raises(DataError, match=r"cannot be used: .*Remove"):
        TreeIndexer(tmp_path / "index", model).index("o/n", [])


def test_the_mean_of_the_best_units_is_that_of_sorting_them(root: Path, tmp_path: Path) -> None:
    (root / "pkg/urls.py").write_text("".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(9)))
    tree = TreeIndexer(tmp_path / "index", hand_model()).index("o/n", folder_files(root))
    scores = np.round(np.random.default_rng(0).random(len(tree)), 1)  # equal ones among them
    expected = [np.mean(sorted(scores[tree.file_of == file])[::-1][:3]) for file in range(len(tree.paths))]
    np.testing.assert_allclose(tree.mean_of_best(scores, 3), expected)


def test_large_counts_and_documents_score_as_small_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(0)
    terms = chance.integers(0, 50, 2_000).astype(np.uint32)
    documents, counts = chance.integers(0, 90, 2_000), chance.integers(1, 9, 2_000).astype(np.uint16)
    packed = Okapi(terms, documents, counts, 90).score([3, 7, 7])
    monkeypatch.setattr("codegrep.index.okapi._PACKED_COUNTS", 0)
    assert packed.tolist() == Okapi(terms, documents, counts, 90).score([3, 7, 7]).tolist()
