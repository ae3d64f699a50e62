"""What the prepare artifact is named after: the same before and after the stage has run, other ones for other data."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from codegrep.compose import compose_overrides, load
from codegrep.config import Config, DataConfig, SourceConfig, SplitConfig
from codegrep.issues.load import load_issues
from codegrep.issues.source import RepositoryLocation
from codegrep.pipeline.prepared import existing, locations
from codegrep.pipeline.prepared import load as load_prepared
from codegrep.pipeline.run_identity import run_name
from codegrep.pipeline.stages import prepare
from codegrep.runtime.artifacts import ArtifactStore, Places, from_outputs
from codegrep.runtime.progress import Progress
from codegrep.sandbox.repositories import Repositories
from tests.pipeline.experiments import make_repository


def _inputs(data: DataConfig, outputs: str = "outputs") -> dict[str, Any]:
    return prepare.inputs(cast(Config, SimpleNamespace(data=data, outputs=outputs)))


def _data(kind: str, **arguments: Any) -> DataConfig:
    return DataConfig("test", {"one": SourceConfig(kind, arguments)}, SplitConfig())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with a docstring in each of three files."""
    folder = tmp_path / "site" / "demo_three"
    folder.mkdir(parents=True)
    for number, letters in enumerate(("alpha", "bravo", "gamma")):
        words = " ".join(f"{letters}{letter}word" for letter in "abcdefghijkl")
        (folder / f"m{number}.py").write_text(f'def f{number}():\n    """Tells of {words}."""\n    return 1\n')
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder


def test_a_demo_that_has_built_its_repositories_is_the_demo_that_it_was(package: Path, tmp_path: Path) -> None:
    """Or the second `make demo` does everything again."""
    data = _data("codegrep.issues.demo.Demo", folder=str(tmp_path / "made"), packages=["demo_three"], min_words=5)
    before = _inputs(data)
    assert load_issues(data).issues and list((tmp_path / "made").iterdir())
    assert _inputs(data) == before
    (package / "m0.py").write_text('def g():\n    """Another release of it, with words of its own."""\n')
    assert _inputs(data) != before


def test_where_outputs_lie_changes_nothing() -> None:
    here, there = (load(compose_overrides([f"outputs={folder}"])) for folder in ("outputs", "/data/elsewhere/"))
    assert here.data.sources["demo"].args["folder"] != there.data.sources["demo"].args["folder"]
    assert run_name(here) == run_name(there)
    assert _inputs(here.data, here.outputs) == _inputs(there.data, there.outputs)
    assert from_outputs({"a": ["out/b", "output/b", "/out/b", 1]}, "out") == {
        "a": ["${outputs}/b", "output/b", "/out/b", 1]
    }


def test_a_file_that_changes_is_other_data(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    data = _data("codegrep.issues.swe_bench.SWEBench", path=str(rows), repositories=str(tmp_path))
    before = _inputs(data)
    assert _inputs(data) == before
    rows.write_text("{}\n{}\n")
    assert _inputs(data) != before


def test_repositories_that_were_moved_are_found_again(package: Path, tmp_path: Path) -> None:
    """Or the artifact comes from the storage of another machine, where they lay elsewhere."""
    data = _data("codegrep.issues.demo.Demo", folder=str(tmp_path / "made"), packages=["demo_three"], min_words=5)
    outputs = tmp_path / "outputs"
    config: Any = SimpleNamespace(data=data, outputs=str(outputs), sandbox=SimpleNamespace(clone_timeout=60))
    artifact = ArtifactStore(outputs / "artifacts").open("prepare", {})
    origin = make_repository(tmp_path / "acme__shop", ("invoice",))
    Repositories(outputs / "sandbox" / "bare", clone_timeout=60).ensure("acme/shop", RepositoryLocation(local=origin))
    shutil.rmtree(origin)
    stays = {"local": str(package), "url": None}
    gone = {"local": "/nowhere/at/all", "url": None}
    artifact.write_json(
        "repositories.json", {"demo/demo_three": gone, "acme/shop": gone, "acme/lost": gone, "acme/here": stays}
    )
    prepare._find_again(config, Places(outputs), artifact)
    places = locations(artifact)
    local = places["demo/demo_three"].local
    assert local is not None and local.is_relative_to(tmp_path / "made") and local.is_dir()
    assert "acme/shop" not in places  # its clone is here
    assert places["acme/here"].local == package
    assert places["acme/lost"].local == Path("/nowhere/at/all")  # whoever needs it says so


def test_names_with_other_separators_of_lines_are_asked_about(tmp_path: Path) -> None:
    """Git repeats a name that it does not know; one of them would shift all other answers."""
    origin = make_repository(tmp_path / "acme__shop", ("invoice",))
    clone = Repositories(tmp_path / "bare", clone_timeout=60).ensure("acme/shop", RepositoryLocation(local=origin))
    there = "HEAD:shop/invoice/invo_core.py"
    assert existing(clone, {there, "HEAD:a\x0bb", "HEAD:a\u2028b", "HEAD:a\rb", "HEAD:a\nb"}) == {there}


def test_it_leaves_which_commits_were_left_out_and_which_issues_are_held_out(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "acme__shop", ("invoice", "parser", "cache", "session"))
    person = ("-c", "user.name=T", "-c", "user.email=t@invalid")
    command = ["git", *person, "commit", "--quiet", "--allow-empty", "-m", "Merge nothing\u2028at all"]
    subprocess.run(command, cwd=repository, check=True)
    arguments = ("data=git_history", f"data.sources.git_history.args.path={repository}", "data.split.by=instance")
    config = load(compose_overrides(["+experiment=v3", *arguments, f"outputs={tmp_path}"]))
    out = io.StringIO()
    artifact = ArtifactStore(tmp_path / "artifacts").open("prepare", prepare.inputs(config))
    prepare.run(config, Places(tmp_path), artifact, MagicMock(), Progress(Console(file=out)))
    assert str(artifact.folder) in out.getvalue()
    rows = artifact.read_json("dropped.json")["rows"]
    (empty,) = [row for row in rows if "Merge nothing" in row["where"]]
    assert empty["where"].startswith("acme/shop ") and empty["reason"]
    assert sum(artifact.read_json("dropped.json")["counts"].values()) == len(rows) == 2  # and the first commit
    lines = (artifact.folder / "issues.jsonl").read_text(encoding="utf-8").split("\n")
    sides = {row["instance_id"]: row["side"] for row in map(json.loads, filter(None, lines))}
    prepared = load_prepared(artifact)
    assert {i for i, side in sides.items() if side == "held_out"} == {issue.instance_id for issue in prepared.held_out}
    assert {i for i, side in sides.items() if side == "train"} == {issue.instance_id for issue in prepared.train}
