"""A static model made by hand: one axis a word."""

from __future__ import annotations

import numpy as np

from codegrep.index.static import StaticModel
from codegrep.index.terms import term_id

WORDS = ("parse", "load", "url", "file", "network", "address", "read", "open")
#: Means the same as another word.
SYNONYMS = {"address": "url", "open": "load"}


def hand_model(version: str = "hand") -> StaticModel:
    vectors = np.eye(len(WORDS), dtype=np.float32)
    for word, other in SYNONYMS.items():
        vectors[WORDS.index(word)] = vectors[WORDS.index(other)]
    terms = np.array([term_id(word) for word in WORDS], np.uint32)
    order = np.argsort(terms)
    return StaticModel(terms[order], vectors[order], np.ones(len(WORDS), np.float32), version)
