"""A replay names the runs whose rollouts it pools."""

from __future__ import annotations

import json
from pathlib import Path

from codegrep.lab.designs import load_designs
from codegrep.lab.replay import replay
from tests.lab.made import write_run


def _write(outputs: Path, artifact: str) -> None:
    write_run(outputs, steps=1)
    (outputs / "artifacts" / "train-0123456789ab").rename(outputs / "artifacts" / artifact)


def _run(outputs: Path, name: str, artifact: str, model: str) -> None:
    folder = outputs / "runs" / name
    folder.mkdir(parents=True)
    (folder / "completed.json").write_text(json.dumps({"artifacts": {"train": artifact}}), encoding="utf-8")
    config = {"model": {"path": model}, "scale": {"name": "laptop"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def test_runs_are_named_and_different_models_are_told_apart(tmp_path: Path) -> None:
    _write(tmp_path, "train-1")
    _write(tmp_path, "train-2")
    _run(tmp_path, "v3-seed0-aa", "train-1", "provided:nano")
    one = replay([tmp_path / "artifacts" / "train-1"], load_designs(["v3"])).notes
    assert any(
        note.startswith("train-1: ") and "of run v3-seed0-aa (model provided:nano, scale laptop)" in note
        for note in one
    )
    assert not any("pooled" in note for note in one)
    _run(tmp_path, "v3-seed1-bb", "train-2", "provided:smollm2-135m-instruct")
    both = replay([tmp_path], load_designs(["v3"])).notes
    assert any("different models or scales are pooled" in note for note in both)


def test_rollouts_of_no_known_run_are_counted_by_folder(tmp_path: Path) -> None:
    _write(tmp_path, "train-1")
    (first, *_) = replay([tmp_path], load_designs(["v3"])).notes
    assert first.startswith("train-1: ") and first.endswith(" rollouts")
