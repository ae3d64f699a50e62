"""Artifacts: named by their inputs, complete or not, never half written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from codegrep.runtime.artifacts import ArtifactStore, fingerprint, write_json


@dataclass
class Settings:
    rate: float = 0.5


def test_equal_inputs_share_an_artifact_and_others_do_not(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    first = store.open("train", {"seed": 0, "settings": Settings()})
    assert store.open("train", {"settings": Settings(), "seed": 0}).folder == first.folder
    assert store.open("train", {"seed": 1, "settings": Settings()}).folder != first.folder
    assert store.open("train", {"seed": 0, "settings": Settings(0.6)}).folder != first.folder
    assert store.open("evaluate", {"seed": 0, "settings": Settings()}).folder != first.folder


def test_an_artifact_is_complete_only_when_finished(tmp_path: Path) -> None:
    artifact = ArtifactStore(tmp_path).open("prepare", {"a": 1})
    artifact.write_json("issues.json", [1, 2])
    assert not artifact.complete
    artifact.finish({"issues": 2})
    assert ArtifactStore(tmp_path).open("prepare", {"a": 1}).complete
    assert artifact.summary == {"issues": 2}
    assert artifact.read_json("issues.json") == [1, 2]


def test_what_cannot_be_named_is_refused() -> None:
    with pytest.raises(TypeError):
        fingerprint({"a": object()})


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert '"a": 1' in path.read_text()
