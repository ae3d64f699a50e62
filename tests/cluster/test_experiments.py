"""No experiment file may rot: each composes and is checked, at the smallest scale and at the papers'."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from codegrep.compose import CONF, load
from tests.cluster.composed import raw

EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
SCALES = ("debug", "paper")
GIVEN = {  # what has no default, for every data choice
    "data.sources.git_history.args.path": "here",
    "data.sources.swe_bench.args.path": "here",
    "data.sources.swe_bench.args.repositories": "here",
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes(experiment: str, scale: str) -> None:
    composed = raw(f"+experiment={experiment}", f"scale={scale}")
    for key, value in GIVEN.items():
        if OmegaConf.select(composed, key.rpartition(".")[0]) is not None:
            OmegaConf.update(composed, key, value)
    config = load(composed)
    assert config.scale.name == scale
    assert config.name != "adhoc", "an experiment names itself"
