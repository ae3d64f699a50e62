"""Forks and renamed copies of repositories with a role are recognised by their first commits in the stage prepare."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from codegrep.compose import load
from codegrep.config import Config, DataConfig, SourceConfig, SplitConfig
from codegrep.errors import DataError
from codegrep.issues import roles
from codegrep.labels import stage
from codegrep.pipeline.prepared import load as load_prepared
from codegrep.pipeline.stages import prepare
from codegrep.runtime.artifacts import Artifact, ArtifactStore, Places
from codegrep.runtime.progress import Progress
from tests.pipeline.experiments import make_repository
from tests.sandbox.trees import run_git
from tests.sweeps.composed import composed, raw

HISTORY = "codegrep.issues.git_history.GitHistory"
BY_ROLE = SplitConfig(held_out=["held_out_1"], validation=["validation"])


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    """One repository of each role, one without, and a renamed copy of a reserved one."""
    folder = tmp_path / "clones"
    for name, topic in (
        ("acme__shop", "invoice"),
        ("acme__guard", "matrix"),
        ("acme__trial", "stream"),
        ("other__docs", "router"),
    ):
        make_repository(folder / name, (topic,))
    make_repository(tmp_path / "origin", ("cache", "parser"))
    run_git("clone", "--quiet", str(tmp_path / "origin"), str(folder / "someone__renamed"), cwd=tmp_path)
    return folder


@pytest.fixture
def known(clones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A conf/roles.yaml for them; the origin of the fork is not among the clones."""
    (root,) = run_git("rev-list", "--max-parents=0", "HEAD", cwd=tmp_path / "origin").split()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "roles.yaml").write_text(
        f"train: {{acme/shop: []}}\nvalidation: {{acme/trial: []}}\nheld_out_1: {{acme/guard: []}}\n"
        f"reserved: {{first/owner: ['{root}']}}\n"
    )
    monkeypatch.setattr(roles, "CONF", tmp_path / "conf")
    roles.known_roles.cache_clear()
    yield
    roles.known_roles.cache_clear()


def run(clones: Path, outputs: Path, split: SplitConfig) -> tuple[Artifact, Config, list[str]]:
    """The stage, without a command line and without MLflow; what it left and said."""
    data = DataConfig("t", {"history": SourceConfig(HISTORY, {"path": str(clones)})}, split)
    config = replace(composed(), data=data, outputs=str(outputs))
    out = io.StringIO()
    artifact = ArtifactStore(outputs / "artifacts").open("prepare", prepare.inputs(config))
    artifact.finish(prepare.run(config, Places(outputs), artifact, MagicMock(), Progress(Console(file=out))))
    return artifact, config, [line for line in out.getvalue().splitlines() if not line.startswith("  repositories:")]


def record(artifact: Artifact) -> dict[str, Any]:
    return dict(json.loads((artifact.folder / "split.json").read_text(encoding="utf-8"))["record"])


@pytest.mark.usefixtures("known")
def test_a_fork_of_a_reserved_repository_is_left_out_and_counted(clones: Path, tmp_path: Path) -> None:
    artifact, config, said = run(clones, tmp_path / "outputs", BY_ROLE)
    prepared = load_prepared(artifact)
    assert {issue.repo for issue in prepared.train} == {"acme/shop", "other/docs"}
    assert {issue.repo for issue in prepared.validation} == {"acme/trial"}
    assert {issue.repo for issue in prepared.held_out} == {"acme/guard"}
    found = record(artifact)
    assert found["removed_by_role"] == {"reserved": {"someone/renamed": 2}}
    assert found["forks"] == {"someone/renamed": "first/owner"}
    assert prepared.roles["someone/renamed"] == "reserved" and "other/docs" not in prepared.roles
    assert artifact.read_json("dropped.json")["counts"]["repository is reserved (conf/roles.yaml)"] == 2
    assert any("2  repository is reserved (conf/roles.yaml)" in line for line in said)
    assert "2 issues for training, 1 held out, 1 for validation" in said[0]
    # Nothing is mined from it either, nor from what the file holds out by name.
    repositories, instances = stage._excluded(config, prepared)
    assert {"someone/renamed", "first/owner", "acme/guard"} <= repositories
    assert not repositories & {"acme/shop", "acme/trial", "other/docs"}
    assert instances == {issue.instance_id for issue in prepared.held_out}


@pytest.mark.usefixtures("known")
def test_a_split_that_speaks_of_no_roles_is_refused_in_one_line(clones: Path, tmp_path: Path) -> None:
    named = SplitConfig(held_out=["acme/guard", "acme/trial"])
    with pytest.raises(DataError, match="someone/renamed shares its first commits with first/owner, which is reserved"):
        run(clones, tmp_path / "outputs", named)
    free, *_ = run(clones, tmp_path / "outputs", replace(named, enforce_roles=False))
    assert {issue.repo for issue in load_prepared(free).train} == {"acme/shop", "other/docs", "someone/renamed"}
    # A file that says something else is other data.
    before = free.fingerprint
    path = tmp_path / "conf" / "roles.yaml"
    path.write_text(path.read_text(encoding="utf-8").partition("reserved:")[0])
    roles.known_roles.cache_clear()
    again, *_ = run(clones, tmp_path / "outputs", named)
    assert again.fingerprint != before and record(again)["removed_by_role"] == {}


def _excluded(config: Config) -> frozenset[str]:
    return stage._excluded(config, None)[0]


def test_nothing_is_mined_from_what_the_file_keeps_for_evaluation() -> None:
    alone = _excluded(composed())
    assert {"psf/requests", "sphinx-doc/sphinx", "textualize/rich", "demo/git"} <= alone
    assert not alone & {"sympy/sympy", "django/django", "encode/httpx"}
    verified = {
        *("astropy/astropy", "django/django", "matplotlib/matplotlib", "mwaskom/seaborn", "pallets/flask"),
        *("psf/requests", "pydata/xarray", "pylint-dev/pylint", "pytest-dev/pytest", "scikit-learn/scikit-learn"),
        *("sphinx-doc/sphinx", "sympy/sympy"),
    }
    given = ("data.sources.swe_bench.args.path=x", "labels.trajectories=[x]", "judge.params.model=x")
    paper = load(raw("scale=paper", *given))
    assert verified <= _excluded(paper)  # the twelve of SWE-bench Verified, as in the paper
    free = composed("data.split.enforce_roles=false", "data.split.held_out=[held_out_1]")
    assert _excluded(free) >= roles.known_roles().named(["held_out_1"])
    assert not _excluded(free) & roles.known_roles().named(["reserved", "held_out_2"])
