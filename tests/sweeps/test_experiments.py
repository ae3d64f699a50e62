"""No experiment file may rot: each composes and is checked, at the smallest scale and at the papers'."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from codegrep.compose import CONF, load
from tests.sweeps.composed import raw

EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
SCALES = ("debug", "paper")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_composes(experiment: str, scale: str) -> None:
    composed = raw(f"+experiment={experiment}", f"scale={scale}")
    for key in OmegaConf.missing_keys(composed):  # what has no default: places of data, the judge's model
        OmegaConf.update(composed, key, ["here"] if key == "labels.trajectories" else "here")
    config = load(composed)
    assert config.scale.name == scale
    assert config.name != "adhoc", "an experiment names itself"
