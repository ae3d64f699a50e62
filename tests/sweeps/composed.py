"""Configurations without a process: composed as the command line would."""

from __future__ import annotations

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from codegrep.compose import CONF, load
from codegrep.config import Config

# What scale=paper wants to be given with CodeGrep's experiments.
PATHS = (
    "data.sources.swe_bench.args.path=rebench.parquet",
    "labels.trajectories=[trajectories.parquet]",
    "judge.params.model=judge",
)


def raw(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(overrides))


def composed(*overrides: str) -> Config:
    return load(raw(*overrides))
