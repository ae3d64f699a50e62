"""The configuration is checked in one place, before anything starts, and errors are one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from codegrep.compose import compose_overrides, load
from codegrep.config import GRPOSettings, RailConfig
from codegrep.config.reading import checked, known_keys
from codegrep.errors import ConfigError
from tests.config.keys import numeric_fields

ROOT = Path(__file__).parents[2]
BOUNDS = {"ge", "gt"}
# A limit of any metric, which may be negative; a list whose numbers are checked one by one.
UNBOUNDED = {"train.guard_rails.rails.<name>.above", "retrievers.<name>.tops"}


@pytest.mark.parametrize(("key", "field"), numeric_fields(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_number_has_a_lower_bound(key: str, field: object) -> None:
    metadata = getattr(field, "metadata", [])
    assert key in UNBOUNDED or any(hasattr(part, name) for part in metadata for name in BOUNDS)


@pytest.mark.parametrize(
    "override",
    [
        "train.grpo.steps=-3",
        "seed=-1",
        "train.grpo.prompts_per_step=0",
        "train.lora.r=0",
        "train.warm_start.epochs=-1",
        "evaluate.batch=0",
        "model.context=10",
        "train.grpo.learning_rate=-1",
    ],
)
def test_a_number_out_of_range_is_refused_with_key_value_and_bound(override: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(compose_overrides(["+experiment=v3", override]))
    assert str(error.value).startswith(f"{override} must be greater than")
    assert "\n" not in str(error.value) and "continue" not in str(error.value)


def test_a_wrong_choice_names_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"agent.prompt is 'long'. Use 'short', 'detailed' or 'entities'"):
        load(compose_overrides(["agent.prompt=long"]))
    with pytest.raises(ConfigError, match=r"stages holds 'trane'. Use 'prepare'"):
        load(compose_overrides(["stages=[trane]"]))


def test_settings_that_do_not_fit_together() -> None:
    with pytest.raises(ConfigError, match=r"train.grpo: denominator=in_loss does not go with loss_type=dapo"):
        load(compose_overrides(["train.grpo.denominator=in_loss", "train.grpo.loss_type=dapo"]))
    with pytest.raises(ConfigError, match=r"^evaluate.models and evaluate.loaded do not fit together"):
        load(compose_overrides(["evaluate.models=[loaded]"]))
    with pytest.raises(ConfigError, match="needs one limit"):
        checked(RailConfig, {"metric": "policy/kl"})


def test_a_missing_and_an_unknown_field() -> None:
    with pytest.raises(ConfigError, match=r"train\.grpo\.enabled is not set"):
        checked(GRPOSettings, {}, "train.grpo.")
    with pytest.raises(ConfigError, match=r"unknown key 'metrics'"):
        checked(RailConfig, {"metric": "a", "above": 1, "metrics": "b"})


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("train.grpo.stepz=3", "unknown key 'train.grpo.stepz'. Did you mean train.grpo.steps?"),
        ("grpo.steps=3", "Did you mean train.grpo.steps?"),
        ("engine.vllm.replicas=2", "It belongs to engine=vllm"),
        ("sweep.trials=3", "It belongs to +sweep=tune_lr"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(override: str, answer: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(compose_overrides([override]))
    assert answer in str(error.value)


CHOICES = {"engine.vllm": "engine=vllm", "engine.openai": "engine=openai", "cluster.submit": "cluster=ray_job"}
NAMES = {"data.sources.": "demo", "train.guard_rails.rails.": "kl"}


def test_every_key_can_be_set_without_a_plus_sign() -> None:
    refused = []
    for choice in ("", *CHOICES.values(), "+sweep=tune_lr"):
        composed: Any = OmegaConf.to_container(compose_overrides([choice] if choice else []))
        for key in known_keys():
            if _choice_of(key) != choice or key.startswith("retrievers."):  # retriever=NAME retriever.KEY=VALUE
                continue
            for prefix, name in NAMES.items():
                key = key.replace(f"{prefix}<name>", f"{prefix}{name}")
            node = composed
            for part in key.split("."):
                if not isinstance(node, dict) or part not in node:
                    refused.append(key)
                    break
                node = node[part]
    assert not refused


def _choice_of(key: str) -> str:
    if key.startswith("sweep"):
        return "+sweep=tune_lr"
    return next((choice for prefix, choice in CHOICES.items() if key.startswith(f"{prefix}.")), "")


def test_the_reference_is_what_the_fields_say() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/configuration_reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
