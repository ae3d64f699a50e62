"""A stage's function is called with what its parameters name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from codegrep.config import Config
from codegrep.errors import CodegrepError
from codegrep.pipeline.prepared import Prepared
from codegrep.pipeline.run import Run
from codegrep.runtime.artifacts import Artifact, ArtifactStore, Places
from codegrep.runtime.progress import Progress
from tests.sweeps.composed import composed


@pytest.fixture
def run(tmp_path: Path) -> Run:
    store = ArtifactStore(tmp_path / "artifacts")
    return Run(composed(), Places(tmp_path), tmp_path / "run", store, cast(Any, None), Progress())


def test_parameters_name_what_is_given(run: Run) -> None:
    own = run.store.open("train", {})

    def stage(artifact: Artifact, config: Config, run_folder: Path) -> tuple[Any, ...]:
        return artifact, config, run_folder

    assert run.call(stage, artifact=own) == (own, run.config, run.run_folder)
    assert run.call(lambda: 1, artifact=own) == 1


def test_an_earlier_stage_is_named_by_its_name_and_has_to_be_complete(run: Run) -> None:
    def stage(warm_start: Artifact) -> Artifact:
        return warm_start

    def optional(prepared: Prepared | None = None) -> Prepared | None:
        return prepared

    run.artifacts["warm_start"] = run.store.open("warm_start", {})
    with pytest.raises(CodegrepError, match=r"stage warm_start is missing. Add warm_start to stages="):
        run.call(stage)
    run.artifacts["warm_start"].finish({})
    assert run.call(stage) is run.artifacts["warm_start"]
    assert run.call(optional) is None
    with pytest.raises(CodegrepError, match="stage prepare is missing"):
        run.call(lambda sandboxes: None)
