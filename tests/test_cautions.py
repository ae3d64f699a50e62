"""What runs but hardly means what it seems to is said before it starts."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir

from codegrep.compose import CONF, cautions, load
from codegrep.rewards.load import load_reward
from codegrep.rewards.needs import needs


def said(*overrides: str) -> str:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return "\n".join(cautions(load(compose("config", overrides=list(overrides)))))


@pytest.mark.parametrize("scale", ["laptop", "debug", "one_gpu"])
@pytest.mark.parametrize("experiment", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_every_experiment_brings_what_it_needs(experiment: str, scale: str) -> None:
    assert said(f"+experiment={experiment}", f"scale={scale}") == ""


@pytest.mark.parametrize("reward", sorted(path.stem for path in (CONF / "reward").glob("*.yaml")))
def test_a_reward_alone_has_what_it_needs_or_that_is_said(reward: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = load(compose("config", overrides=[f"reward={reward}"]))
    assert bool(cautions(config)) is bool(needs(load_reward(config.reward)))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["reward=v1"], ["line ranges", "agent.prompt=short", "Use agent.prompt=detailed"]),
        (["reward=v2", "agent.prompt=entities"], ["agent.prompt=entities does not"]),
        (["reward=codescout"], ["Use agent.prompt=entities", "Use data.gold_entities=true"]),
        (["reward=tiered"], ["needs a judge of answers", "answer_judge=none asks nobody", "Use answer_judge=llm"]),
        (["reward=v3", "answer_judge=llm", "answer_judge.params.model=m"], ["a judge that reward=v3 does not need"]),
    ],
)
def test_what_is_said(overrides: list[str], words: list[str]) -> None:
    text = said(*overrides)
    for word in words:
        assert word in text


def test_nothing_is_said_with_the_right_prompt() -> None:
    assert said("reward=v1", "agent.prompt=detailed") == ""


def test_nothing_is_said_where_a_judge_is_asked_or_none_is_wanted() -> None:
    assert said("+experiment=signal_reshaping") == ""
    asked = ["reward.params.judge=answer_judge", "answer_judge=llm", "answer_judge.params.model=m"]
    assert said("+experiment=signal_reshaping", *asked) == ""
