"""The command line of `label`: every word of it is honoured, or refused in one line."""

from __future__ import annotations

import pytest

from codegrep.errors import ConfigError
from codegrep.labels.command import configuration

FILE, GOLD = "t.parquet", ("--instances", "gold.jsonl")


def test_options_and_overrides_reach_the_configuration() -> None:
    config = configuration([FILE, "u.jsonl", *GOLD, "--outputs", "here", "--tokenizer", "words", "labels.min_tokens=7"])
    assert config.labels.trajectories == [FILE, "u.jsonl"] and config.labels.instances == ["gold.jsonl"]
    assert config.outputs == "here" and config.labels.tokenizer == "words" and config.labels.min_tokens == 7
    assert config.stages == ["label"] and config.name == "label" and config.labels.enabled


def test_keys_are_as_good_as_options() -> None:
    config = configuration([FILE, "labels.instances=[a.jsonl,b.jsonl]", "outputs=here", "labels.tokenizer=words"])
    assert config.labels.instances == ["a.jsonl", "b.jsonl"]
    assert config.outputs == "here" and config.labels.tokenizer == "words"
    assert configuration([FILE, *GOLD]).outputs == "outputs"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*GOLD, "labels.instances=[b.jsonl]"], "labels.instances .*--instances"),
        ([*GOLD, "--outputs", "a", "outputs=b"], "outputs .*--outputs"),
        ([*GOLD, "--tokenizer", "words", "++labels.tokenizer=b"], "labels.tokenizer .*--tokenizer"),
        ([*GOLD, "labels.trajectories=[b.parquet]"], "labels.trajectories .*files"),
        ([*GOLD, "stages=[prepare,label]"], "stages"),
        ([*GOLD, "labels=gold_patch"], "labels"),
        ([*GOLD, "labels.enabled=false"], "labels.enabled"),
        ([*GOLD, "labels.no_such=1"], "no_such"),
        ([], "--instances"),
    ],
)
def test_what_cannot_be_honoured_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configuration([FILE, *words])
