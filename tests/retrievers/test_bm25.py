"""BM25 against a plain Okapi written out here, and over real trees on disk."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.errors import RepositoryError
from codegrep.index.terms import term_id
from codegrep.issues.issue import Issue
from codegrep.retrievers.bm25 import BM25, TreeIndexer, okapi_of, term_counts, tokenise, tokenise_path
from codegrep.retrievers.retriever import Retriever


def okapi(documents: list[list[str]], query: list[str], k1: float = 1.5, b: float = 0.75) -> list[float]:
    """Okapi BM25 with the epsilon floor for negative idf, straight from its definition."""
    total = len(documents)
    mean_length = sum(map(len, documents)) / total
    vocabulary = {term for document in documents for term in document}
    containing = {term: sum(term in document for document in documents) for term in vocabulary}
    idf = {term: math.log(total - n + 0.5) - math.log(n + 0.5) for term, n in containing.items()}
    floor = 0.25 * sum(idf.values()) / len(idf) if idf else 0.0
    scores = []
    for document in documents:
        score = 0.0
        for term in query:
            frequency = document.count(term)
            if frequency:
                weight = idf[term] if idf[term] >= 0 else floor
                length = 1 - b + b * len(document) / mean_length
                score += weight * frequency * (k1 + 1) / (frequency + k1 * length)
        scores.append(score)
    return scores


def scores_of(documents: list[list[str]], query: list[str]) -> np.ndarray:
    return okapi_of([term_counts(document) for document in documents]).score([term_id(t) for t in query])


words = st.sampled_from(["alpha", "beta", "gamma", "delta", "eps", "zeta"])
texts = st.lists(words, max_size=12)


@given(st.lists(texts, min_size=1, max_size=6), st.lists(words, max_size=8))
def test_same_scores_as_okapi_written_out(documents: list[list[str]], query: list[str]) -> None:
    if any(documents):
        assert scores_of(documents, query) == pytest.approx(okapi(documents, query))


def test_frequent_terms_get_the_epsilon_floor_and_not_zero() -> None:
    documents = [["the", "alpha", "alpha"], ["the", "beta"], ["the", "gamma", "delta", "eps"]]
    scores = scores_of(documents, ["the"])
    assert scores == pytest.approx(okapi(documents, ["the"]))
    assert (scores != 0).all()


def test_nothing_to_search_or_to_ask() -> None:
    assert scores_of([], ["alpha"]).tolist() == []
    assert scores_of([[], []], ["alpha"]).tolist() == [0.0, 0.0]
    assert scores_of([["alpha"], ["beta"]], []).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Foo.bar_baz(x, yy)", ["foo.bar_bazx", "yy"]),
        ("see https://a.b/c and HTTP://x (http)", ["see", "and"]),
        ("a  b\tab\n\x1c cd\xa0ef", ["ab", "cd", "ef"]),
        ("./src/a.py: `Ünïcode`!", ["./src/a.py", "ncode"]),
        ("", []),
    ],
)
def test_tokeniser(text: str, expected: list[str]) -> None:
    assert tokenise(text) == expected


@given(st.text())
def test_tokeniser_is_the_paper_s_order_of_steps(text: str) -> None:
    keep = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./")
    pieces = ["".join(char for char in piece if char in keep).lower() for piece in text.split()]
    assert tokenise(text) == [piece for piece in pieces if len(piece) >= 2 and not piece.startswith("http")]


def test_path_tokens() -> None:
    assert tokenise_path("src/core/Expr.py") == ["src/core/expr.py", "src", "core", "expr", "py"]


def issue(text: str) -> Issue:
    return Issue("i-1", "o/n", "c", text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "pkg/alpha.py": "def alpha_beam(): pass\n",
        "pkg/beta.py": "def beta_ray(): return alpha_beam\n",
        "pkg/none.py": "",
        "tests/test_alpha.py": "alpha_beam alpha_beam alpha_beam\n",
        "build/alpha.py": "alpha_beam\n",
        "deep/.venv/alpha.py": "alpha_beam\n",
        "pkg/__pycache__/alpha.py": "alpha_beam\n",
        "alpha.txt": "alpha_beam\n",
        "zz.py": "other words here\n",
        "zzz.py": "still others there\n",
        "filler.py": "nothing much\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_retrieves_python_files_outside_the_skip_list(tree: Path) -> None:
    found = BM25(top_k=9).retrieve(issue("the alpha_beam is wrong"), tree)
    assert set(found.files) == {"tests/test_alpha.py", "pkg/alpha.py", "pkg/beta.py"}
    assert found.files[0] == "tests/test_alpha.py"
    assert found.detail["documents"] == 7
    without = BM25(top_k=9, include_tests=False).retrieve(issue("the alpha_beam is wrong"), tree)
    assert set(without.files) == {"pkg/alpha.py", "pkg/beta.py"}
    assert without.detail["documents"] == 6


def test_fewer_than_k_and_none(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert BM25(top_k=2).retrieve(issue("beta_ray"), tree).files == ("pkg/beta.py",)
    assert BM25(top_k=2).retrieve(issue(""), tree).files == ()
    assert BM25(top_k=2).retrieve(issue("unheard of"), tree).files == ()
    assert BM25(top_k=2).retrieve(issue("alpha_beam"), tmp_path_factory.mktemp("empty")).files == ()


def test_top_one_is_the_head_of_top_two(tree: Path) -> None:
    query = issue("alpha_beam return")
    assert BM25(top_k=1).retrieve(query, tree).files == BM25(top_k=2).retrieve(query, tree).files[:1]


def test_ties_go_by_path(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "c.py", "x.py", "y.py", "z.py", "w.py"):
        (tmp_path / name).write_text("needle hay" if name < "d" else "nothing here", encoding="utf-8")
    assert BM25(top_k=2).retrieve(issue("needle"), tmp_path).files == ("a.py", "b.py")


def test_paths_as_second_index(tree: Path) -> None:
    query = issue("crash in pkg/none.py")
    assert "pkg/none.py" not in BM25(top_k=2, path_weight=0.0).retrieve(query, tree).files
    assert BM25(top_k=2).retrieve(query, tree).files[0] == "pkg/none.py"


def test_links_unreadable_bytes_and_a_folder_named_py(tree: Path) -> None:
    (tree / "link.py").symlink_to(tree / "pkg" / "alpha.py")
    (tree / "out.py").symlink_to("/etc/hostname")
    (tree / "loop").symlink_to(tree)
    (tree / "folder.py").mkdir()
    (tree / "latin.py").write_bytes(b"caf\xe9_rare rare_word\n")
    found = BM25(top_k=9).retrieve(issue("rare_word alpha_beam"), tree).files
    assert "latin.py" in found
    assert not {"link.py", "out.py", "folder.py"} & set(found)
    assert not [name for name in found if name.startswith("loop/")]


def test_an_index_is_kept_until_a_file_changes(tree: Path) -> None:
    indexer = TreeIndexer()
    first = indexer.index(tree, include_tests=True, with_paths=False)
    assert indexer.index(tree, include_tests=True, with_paths=False) is first
    (tree / "zz.py").write_text("alpha_beam twice alpha_beam\n", encoding="utf-8")
    assert indexer.index(tree, include_tests=True, with_paths=False) is not first
    retriever = BM25(top_k=9, indexer=indexer)
    assert "zz.py" in retriever.retrieve(issue("alpha_beam"), tree).files
    (tree / "zz.py").unlink()
    assert "zz.py" not in retriever.retrieve(issue("alpha_beam"), tree).files


def test_a_replaced_file_of_the_same_size_and_time_is_seen(tree: Path) -> None:
    retriever = BM25(top_k=9)
    assert "zz.py" not in retriever.retrieve(issue("alpha_beam"), tree).files
    state = (tree / "zz.py").stat()
    new = tree / "new"
    new.write_text("alpha_beam words\n".ljust(state.st_size)[: state.st_size], encoding="utf-8")
    os.utime(new, ns=(state.st_atime_ns, state.st_mtime_ns))
    new.replace(tree / "zz.py")
    assert "zz.py" in retriever.retrieve(issue("alpha_beam"), tree).files


def test_bounds_do_not_change_results(tree: Path) -> None:
    query = issue("alpha_beam return other")
    tight = TreeIndexer(max_entries=0, max_indexes=1)
    for include_tests in (True, False, True):
        bounded = BM25(top_k=5, include_tests=include_tests, indexer=tight).retrieve(query, tree)
        free = BM25(top_k=5, include_tests=include_tests).retrieve(query, tree)
        assert bounded.files == free.files


def test_missing_tree_and_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="there is no folder"):
        BM25().retrieve(issue("x"), tmp_path / "gone")
    with pytest.raises(ValueError, match="top_k"):
        BM25(top_k=0)
    with pytest.raises(ValueError, match="path_weight"):
        BM25(path_weight=-1.0)


def test_meets_the_protocol() -> None:
    retriever: Retriever = BM25()
    assert isinstance(retriever, Retriever)
