from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codegrep.errors import ModelError
from codegrep.index.static import SHIPPED, load_static, save_static
from codegrep.index.terms import count_terms, term_id
from tests.index.made_models import hand_model


def test_a_text_is_the_sum_of_its_words() -> None:
    model = hand_model()
    (vector,) = model.embed(count_terms(["parse parse load unheard"]))
    assert sorted(vector[vector > 0].tolist()) == pytest.approx([np.log(2), np.log(3)])
    asked = model.embed_query("parse parse load unheard")
    assert asked == pytest.approx(vector / np.linalg.norm(vector))
    assert not model.embed_query("unheard").any()


def test_saved_and_loaded_vectors_differ_by_less_than_a_step(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    save_static(tmp_path / "m.npz", ["parse", "load", "ünï"], vectors, np.array([1, 2, 3], np.float32))
    loaded = load_static(tmp_path / "m.npz")
    order = np.argsort([term_id(word) for word in ("parse", "load", "ünï")])
    assert np.abs(loaded.vectors - vectors[order]).max() <= np.abs(vectors).max() / 254 + 1e-6
    assert loaded.query_weights.tolist() == (order + 1).tolist()


def test_a_model_that_is_missing_or_none(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no static model"):
        load_static(tmp_path / "gone.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK broken")
    with pytest.raises(ModelError, match="is no static model"):
        load_static(tmp_path / "broken.npz")
    np.savez(tmp_path / "other.npz", words=np.zeros(1, np.uint8))
    with pytest.raises(ModelError, match="is no static model"):
        load_static(tmp_path / "other.npz")


def test_the_shipped_model_is_small_and_finds_related_words() -> None:
    assert SHIPPED.stat().st_size <= 15_000_000
    model = load_static()
    near, far = model.embed_query("delete a file"), model.embed_query("matrix eigenvalues")
    assert near @ model.embed_query("remove path") > far @ model.embed_query("remove path")
