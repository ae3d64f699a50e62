"""Why the hybrid retriever ranks a file high: the features of the fusion in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegrep.index.fusion import FEATURES, candidates, load_fusion
from codegrep.index.statement import statement_of
from codegrep.index.tree import TreeIndex

_MOST_NAMES = 3
# Features that tell one thing, and how it is said; what is not here (the shape of a file) convinces nobody.
_SAID = {
    ("path",): "the text gives its path",
    ("file_name",): "the text gives its file name",
    ("last_frame", "frame"): "a traceback in the text runs through it",
    ("imported", "imported_names"): "the text imports from it",
    ("module_named", "stem"): "the text names the module",
    ("defines", "defines_rare", "defines_code", "defines_title"): "it defines {names}, which the text mentions",
    ("path_words", "path_words_title"): "its path shares words with the text",
}
_RANKED = {"bm25_file": "words of the file", "bm25_unit": "words of one definition", "static": "similar meaning"}


def reasons(tree: TreeIndex, text: str, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Say what speaks for files, the weightiest first.

    Args:
        tree: index that ranked them.
        text: what was searched for.
        paths: files of the tree.

    Returns:
        Reasons by path; none for files that are no candidates of the fusion.
    """
    statement, fusion = statement_of(text), load_fusion()
    ranked = candidates(tree, statement, np.ones(len(tree.paths), bool))
    weighed = (ranked.features - fusion.means) / fusion.scales * fusion.weights
    column = {name: number for number, name in enumerate(FEATURES)}
    said = {}
    for row, file in enumerate(ranked.files):
        path = tree.paths[file]
        if path not in paths:
            continue
        names = sorted(tree.defined_in(int(file)) & (statement.code_names | statement.title_names))[:_MOST_NAMES]
        found: list[tuple[float, str]] = []
        for features, words in _SAID.items():
            holds = any(ranked.features[row, column[name]] > 0 for name in features)
            if holds and (names or "{names}" not in words):
                weight = sum(weighed[row, column[name]] for name in features)
                found.append((float(weight), words.format(names=", ".join(names))))
        for score, words in _RANKED.items():
            place = round(1 / ranked.features[row, column[f"{score}_rank"]] - 5) + 1
            weight = sum(weighed[row, column[name]] for name in (score, f"{score}_rank", f"{score}_gap"))
            found.append((float(weight), f"{words}: place {place} of {len(tree.paths)}"))
        said[path] = tuple(words for weight, words in sorted(found, key=lambda one: -one[0]) if weight > 0)
    return said
