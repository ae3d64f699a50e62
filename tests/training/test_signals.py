"""Governance and turn scorers from their YAML files, and the mistakes that are caught before a run starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from codegrep.config import GovernanceConfig, TurnScoresConfig
from codegrep.config.reading import checked
from codegrep.errors import ConfigError
from codegrep.rewards.turn_credit import RolloutFacts
from codegrep.training.signals import load_governance, load_turn_scoring

CONF = Path(__file__).parents[2] / "conf"
PLAIN = GovernanceConfig("plain", {}, False, False, 0, 15, 0)
NONE = TurnScoresConfig("none", None, {}, True, 0.1)


def shipped(group: str, kind: type) -> dict[str, Any]:
    found = {}
    for file in sorted((CONF / group).glob("*.yaml")):
        layers = [OmegaConf.load(file)]
        while layers[0].get("defaults"):
            layers.insert(0, OmegaConf.load(file.with_name(f"{layers[0].defaults[0]}.yaml")))
        plain = [{k: v for k, v in OmegaConf.to_container(layer).items() if k != "defaults"} for layer in layers]
        merged = OmegaConf.merge(*plain)
        for key in OmegaConf.missing_keys(merged):  # what the user has to give
            OmegaConf.update(merged, key, "given")
        found[file.stem] = checked(kind, OmegaConf.to_container(merged))
    return found


def test_every_shipped_governance_loads() -> None:
    rules = {name: load_governance(config) for name, config in shipped("governance", GovernanceConfig).items()}
    assert set(rules) == {"plain", "signal_reshaping", "left_out", "overlong"}
    assert rules["signal_reshaping"].infrastructure_in_group and rules["signal_reshaping"].masked_in_group
    assert not any(rules[name].infrastructure_in_group for name in ("plain", "left_out", "overlong"))
    # The same handling, but that a judge's outage is no judgement.
    judge = {"judge_failed": "full_mask"}
    assert dict(rules["left_out"].handling) == {**rules["signal_reshaping"].handling, **judge}
    assert not rules["left_out"].masked_in_group


def test_every_shipped_turn_scorer_loads() -> None:
    scoring = {name: load_turn_scoring(config) for name, config in shipped("turn_scores", TurnScoresConfig).items()}
    assert scoring["none"].scorer is None
    assert set(scoring) == {"none", "information", "credit", "judge"} and scoring["judge"].concurrency == 16
    assert scoring["information"].scorer and scoring["credit"].scorer and scoring["credit"].only_answered


def test_a_misspelt_cause_is_one_line() -> None:
    with pytest.raises(ConfigError, match="governance: unknown cause 'max_token'"):
        load_governance(replace(PLAIN, handling={"max_token": "full_mask"}))


def three(trajectory: RolloutFacts) -> list[float]:
    return [3.0] * len(trajectory.turns)


def broken(trajectory: RolloutFacts) -> list[float]:
    return [1 / 0]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"function": "codegrep.rewards.information.information_gian"}, "Did you mean .*information_gain"),
        ({"function": "codegrep.rewards.information.information_gain", "params": {"newest": 1}}, "no such parameter"),
        ({"function": f"{__name__}.three"}, r"a score in \[0, 1\]"),
        ({"function": f"{__name__}.broken"}, "failed on a sample rollout: ZeroDivisionError"),
    ],
)
def test_mistakes_in_turn_scores_are_one_line(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        load_turn_scoring(replace(NONE, **changes))
