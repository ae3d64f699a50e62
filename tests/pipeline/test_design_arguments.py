"""The command lines of test_designs.py, composed and checked but not run: that takes an hour."""

from __future__ import annotations

import pytest

from codegrep.compose import CONF, cautions, compose_overrides, load
from codegrep.config import Config
from tests.pipeline.test_designs import DESIGNS, arguments_of


def config_of(design: str) -> Config:
    return load(compose_overrides([*arguments_of(design), "data.sources.git_history.args.path=/nowhere"]))


def test_every_design_of_a_paper_is_run() -> None:
    assert set(DESIGNS) == {path.stem for path in (CONF / "experiment").glob("*.yaml")}


@pytest.mark.parametrize("design", DESIGNS)
def test_a_design_composes_to_what_it_is_called(design: str) -> None:
    config = config_of(design)
    assert config.name == design
    assert config.reward.name == {"signal_reshaping": "tiered"}.get(design, design)
    assert list(config.data.sources) == ["git_history"] and config.model.path == "provided:nano"
    assert config.data.sources["git_history"].args["gold_ranges"] is True
    assert (config.train.grpo.steps, config.train.grpo.prompts_per_step, config.train.grpo.group_size) == (2, 2, 2)
    assert cautions(config) == []


def test_codescout_scores_names_that_are_asked_for_and_looked_up() -> None:
    config = config_of("codescout")
    assert config.data.gold_entities is True and config.agent.prompt == "entities"
    assert (config.advantage.name, config.advantage.scale) == ("dr_grpo", "none")
    grpo = config.train.grpo
    assert (grpo.importance, grpo.clip_low, grpo.clip_high, grpo.kl) == ("sequence", 3e-4, 4e-4, 0.0)
    assert grpo.measure_kl is True  # else policy/kl would be missing among its curves
