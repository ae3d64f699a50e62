"""`python -m codegrep paper …`: where a run departs from the source of its experiment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from codegrep.compose import compose_overrides
from codegrep.conf_folder import CONF

# Where a run computes and what it measures is no value of a source.
_GROUPS = tuple("data labels judge model agent tools reward advantage governance process train".split())


def main(argv: list[str]) -> int:
    """Print a line for each differing key; 0."""
    parser = argparse.ArgumentParser(
        prog="python -m codegrep paper",
        description="Key by key: the value of the experiment's source (scale=paper) and that of this run.",
        epilog="python -m codegrep paper +experiment=colgrep",
    )
    parser.add_argument("overrides", nargs="*", help="as for a run")
    overrides = parser.parse_intermixed_args(argv).overrides
    rows = [("key", "scale=paper", "this run"), *differences(overrides)]
    widths = [min(60, max(len(row[column]) for row in rows)) for column in range(2)]
    for key, paper, own in rows:
        print(f"{key:<{widths[0]}}  {paper:<{widths[1]}}  {own}")
    return 0


def differences(overrides: list[str]) -> list[tuple[str, str, str]]:
    """(key, value with scale=paper, value of the run that these overrides make) of every key in which they differ.

    Left out are keys that only one of them has (arguments of another source of issues), and what conf/scale/paper.yaml
    says about the machine.
    """
    experiment = [word for word in overrides if word.lstrip("+").startswith("experiment=")]
    paper, own = (_leaves(compose_overrides(words)) for words in ([*experiment, "scale=paper"], overrides))
    machine = _flat(OmegaConf.to_container(OmegaConf.load(CONF / "scale" / "paper.yaml"), resolve=False))
    keys = sorted(key for key in paper.keys() & own.keys() if key.startswith(tuple(f"{g}." for g in _GROUPS)))
    return [(key, paper[key], own[key]) for key in keys if key not in machine and paper[key] != own[key]]


def _leaves(cfg: DictConfig) -> dict[str, str]:
    return {key: str(value) for key, value in _flat(OmegaConf.to_container(cfg, resolve=True)).items()}


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(node, Mapping) or not node:
        return {prefix.rstrip("."): node}
    return {key: value for name, inner in node.items() for key, value in _flat(inner, f"{prefix}{name}.").items()}
