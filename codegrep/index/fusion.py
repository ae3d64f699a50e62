"""Learned fusion: files ranked by a logistic regression over scores, ranks and what the statement spells out.

Probability of file f for statement s among candidates C: exp(w·x(s, f)) / Σ_{c in C} exp(w·x(s, c)), a conditional
logit (McFadden 1974), fitted on fix commits (scripts/train_fusion.py). The weights lie in data/fusion.json.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from codegrep.errors import ModelError
from codegrep.index.statement import MENTIONS, Statement, mentions
from codegrep.index.terms import count_terms, words_of
from codegrep.index.tree import TreeIndex
from codegrep.issues.paths import is_test_path

SHIPPED = Path(__file__).parent / "data" / "fusion.json"
CANDIDATES = 50
Floats = NDArray[np.float64]
_SCORES = ("bm25_file", "bm25_file_title", "bm25_unit", "bm25_unit_title", "static", "static_title", "static_three")
_NAMES = ("defines", "defines_rare", "defines_code", "defines_title")
_SHAPE = ("path_words", "path_words_title", "log_units", "depth", "init", "test")
FEATURES = (
    *_SCORES,
    *(f"{name}_rank" for name in _SCORES),
    *(f"{name}_gap" for name in _SCORES),
    *MENTIONS,
    *_NAMES,
    *_SHAPE,
)


@dataclass(frozen=True)
class Fusion:
    """Weights of the features; standardised features are what they weigh."""

    means: Floats
    scales: Floats
    weights: Floats

    def score(self, features: Floats) -> Floats:
        """(n,) scores of (n, len(FEATURES)) features; differences are log odds."""
        return np.asarray((features - self.means) / self.scales @ self.weights)


@cache
def load_fusion(path: Path = SHIPPED) -> Fusion:
    """Load weights.

    Raises:
        ModelError: there are none, or they are of other features.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        arrays = [np.array(stored[name], np.float64) for name in ("means", "scales", "weights")]
        names = tuple(stored["features"])
    except FileNotFoundError:
        raise ModelError(f"there is no learned fusion {path}", "Make one: python scripts/train_fusion.py") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is no learned fusion: {error}", "Make it again") from error
    if names != FEATURES or any(array.shape != (len(FEATURES),) for array in arrays):
        raise ModelError(f"{path} weighs other features than these", "Make it again: python scripts/train_fusion.py")
    return Fusion(*arrays)


@dataclass(frozen=True)
class Candidates:
    """Files that the fusion ranks. files: (n,) numbers in the tree; features: (n, len(FEATURES))."""

    files: NDArray[np.int64]
    features: Floats


def candidates(tree: TreeIndex, statement: Statement, allowed: NDArray[np.bool_]) -> Candidates:
    """Return the best files by BM25 and by vectors, those that the statement names, and their features.

    Args:
        tree: its index.
        statement: of the issue.
        allowed: (files,) which files may be ranked.
    """
    if not allowed.any():
        return Candidates(np.zeros(0, np.int64), np.zeros((0, len(FEATURES))))
    scores = _file_scores(tree, statement)
    names = _defined(tree, statement)
    pool = set()
    for row in (0, 1, 2, 4, 5):
        best = np.argsort(-np.where(allowed, scores[row], -np.inf), kind="stable")
        pool.update(best[:CANDIDATES].tolist())
    spelled = statement.paths | set(statement.frames)
    lasts = {path.rpartition("/")[2] for path in spelled}
    pool.update(file for file, path in enumerate(tree.paths) if path.rpartition("/")[2] in lasts)
    pool.update(names.rare)
    files = np.array(sorted(file for file in pool if allowed[file]), np.int64)
    columns = [scores[:, files], _reciprocal_ranks(scores, allowed)[:, files], _gaps(scores[:, files])]
    rest = [
        np.concatenate(
            [
                mentions(statement, tree.paths[file], tree.defined_in(file)),
                names.of(file),
                _shape(tree, statement, file),
            ]
        )
        for file in files
    ]
    return Candidates(files, np.concatenate([np.concatenate(columns).T, np.array(rest)], axis=1))


def _file_scores(tree: TreeIndex, statement: Statement) -> Floats:
    """(len(_SCORES), files)."""
    rows = []
    for words in (tree.file_words, tree.words):
        for text in (statement.text, statement.title):
            own = words.score(count_terms([text]).terms)
            rows.append(own if words is tree.file_words else tree.best_of_files(own))
    static = tree.vectors @ tree.model.embed_query(statement.text)
    rows.append(tree.best_of_files(static))
    rows.append(tree.best_of_files(tree.vectors @ tree.model.embed_query(statement.title)))
    rows.append(tree.mean_of_best(static, 3))
    table = np.array(rows, np.float64)
    table[:4] /= np.maximum(table[:4].max(axis=1, keepdims=True), 1e-9)
    return table


def _reciprocal_ranks(scores: Floats, allowed: NDArray[np.bool_]) -> Floats:
    order = np.argsort(-np.where(allowed, scores, -np.inf), axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(order.shape[1])[None, :].repeat(len(order), 0), axis=1)
    return np.asarray(1 / (5.0 + ranks))


def _gaps(scores: Floats) -> Floats:
    """Distance to the best of the candidates, in units of their spread."""
    return np.asarray((scores - scores.max(axis=1, keepdims=True)) / (scores.std(axis=1, keepdims=True) + 1e-6))


@dataclass(frozen=True)
class _Defined:
    """Names in the statement that files define, as four numbers a file; rare: files that alone define one."""

    numbers: dict[int, Floats]
    rare: frozenset[int]

    def of(self, file: int) -> Floats:
        return self.numbers.get(int(file), np.zeros(len(_NAMES)))


def _defined(tree: TreeIndex, statement: Statement) -> _Defined:
    numbers: dict[int, Floats] = {}
    rare: set[int] = set()
    for name in statement.names:
        files = tree.definitions.get(name)
        if files is None:
            continue
        share = 1 / len(files)
        in_code, in_title = name in statement.code_names, name in statement.title_names
        if len(files) <= 3 and (in_code or in_title):
            rare.update(files.tolist())
        for file in files.tolist():
            numbers.setdefault(file, np.zeros(len(_NAMES)))
            numbers[file] += (1.0, share, share * in_code, share * in_title)
    return _Defined({file: np.log1p(values) for file, values in numbers.items()}, frozenset(rare))


def _shape(tree: TreeIndex, statement: Statement, file: int) -> Floats:
    path = tree.paths[file]
    words, tested = _path_words(path)
    text, title = statement.words, statement.title_words
    return np.array(
        [
            sum(word in text for word in words) / max(1, len(words)),
            sum(word in title for word in words) / max(1, len(words)),
            math.log1p(tree.first_unit[file + 1] - tree.first_unit[file]),
            path.count("/"),
            path.endswith("__init__.py"),
            tested,
        ],
        np.float64,
    )


@lru_cache(maxsize=100_000)
def _path_words(path: str) -> tuple[frozenset[str], bool]:
    """Return the words of a path, and whether it is a test file's."""
    return frozenset(words_of(str(PurePosixPath(path).with_suffix("")))), is_test_path(path)
