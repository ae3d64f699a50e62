"""The launcher's own rules, without Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from codegrep.cluster.ignored_choices import refuse_ignored_choices
from codegrep.errors import ConfigError
from codegrep.pipeline import completion
from codegrep.pipeline.artifact import ArtifactStore
from tests.cluster.composed import composed

ROOT = Path(__file__).parents[2]


def test_a_launcher_in_a_file_is_refused_with_what_to_type() -> None:
    with pytest.raises(ConfigError, match=r"hydra/launcher=basic.*type hydra/launcher=basic on the command line"):
        refuse_ignored_choices({"hydra/launcher": "ray"}, {"hydra/launcher": "basic"})
    refuse_ignored_choices({"hydra/launcher": "ray"}, {"hydra/launcher": "ray"})


@pytest.mark.timeout(300)
def test_an_experiment_file_with_a_launcher_stops_a_sweep_before_any_job(tmp_path: Path) -> None:
    own = tmp_path / "own" / "experiment"
    own.mkdir(parents=True)
    for name in ("a1", "a2"):
        text = f"# @package _global_\ndefaults:\n  - override /hydra/launcher: basic\nname: {name}\n"
        (own / f"{name}.yaml").write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "codegrep", "--config-dir", str(own.parent), "-m", "+experiment=a1,a2"),
            *(f"outputs={tmp_path / 'outputs'}", "stages=[prepare]"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 2, done.stderr
    assert "type hydra/launcher=basic on the command line" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "outputs" / "runs").exists()


def test_completion_holds_for_the_same_stages_while_artifacts_are_there(tmp_path: Path) -> None:
    config = composed("+experiment=v3", f"outputs={tmp_path}", "stages=[prepare,evaluate]")
    folder = tmp_path / "runs" / completion.run_name(config)
    assert not completion.is_completed(config)
    store = ArtifactStore(tmp_path / "artifacts")
    made = {stage: store.open(stage, {"x": stage}) for stage in config.stages}
    for artifact in made.values():
        artifact.finish({})
    completion.mark(folder, config, made)
    assert completion.is_completed(config)
    assert completion.is_completed(composed("+experiment=v3", f"outputs={tmp_path}", "stages=[prepare]"))
    assert not completion.is_completed(composed("+experiment=v3", f"outputs={tmp_path}", "stages=[prepare,train]"))
    assert not completion.is_completed(composed("+experiment=v3", f"outputs={tmp_path}", "seed=1", "stages=[prepare]"))
    (made["evaluate"].folder / "artifact.json").unlink()
    assert not completion.is_completed(config)
    made["evaluate"].finish({})
    completion.clear(folder)
    assert not completion.is_completed(config)


def test_where_and_how_a_run_is_recorded_is_no_part_of_its_name() -> None:
    plain = composed("+experiment=v3")
    inside = composed("+experiment=v3", "tracking.sweep=s-1", "tracking.parent_run=abc", "cluster.address=h:1")
    assert completion.run_name(plain) == completion.run_name(inside)
