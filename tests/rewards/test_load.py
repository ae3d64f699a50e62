"""Designs and factors from YAML: the shipped ones load; every mistake is one line that names the key and the fix."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from codegrep.config import AdvantageConfig, FunctionConfig
from codegrep.errors import ConfigError
from codegrep.rewards.designs import v3
from codegrep.rewards.load import load_advantage, load_function, load_reward
from codegrep.rewards.outcome import Outcome, RewardParts

CONF = Path(__file__).parents[2] / "conf"
VARIANTS = ("colgrep_f2", "colgrep_entities")  # of a design that has a file of its own
OUTCOME = Outcome(("a",), frozenset("a"), calls_per_turn=(1, 0))


def config(function: str, **params: Any) -> FunctionConfig:
    return FunctionConfig("test", function, params)


@pytest.fixture
def own_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    module = types.ModuleType("own_designs")
    monkeypatch.setitem(sys.modules, "own_designs", module)
    yield module


@pytest.mark.parametrize("file", sorted((CONF / "reward").glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_rewards_load_with_the_defaults_of_their_functions(file: Path) -> None:
    loaded = FunctionConfig(**yaml.safe_load(file.read_text(encoding="utf-8")))
    assert loaded.name == file.stem
    design = load_reward(loaded)
    bare = load_reward(FunctionConfig(loaded.name, loaded.function))
    if file.stem not in VARIANTS:
        assert design(OUTCOME) == bare(OUTCOME)


@pytest.mark.parametrize("file", sorted((CONF / "advantage").glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_factors_load(file: Path) -> None:
    loaded = AdvantageConfig(**yaml.safe_load(file.read_text(encoding="utf-8")))
    assert loaded.name == file.stem
    assert load_advantage(loaded)(OUTCOME) in (1.0, 0.5, 0.125)
    assert loaded.baseline in ("mean", "loo")
    assert loaded.scale in ("group", "none")


def test_parameters_are_bound_and_the_function_travels() -> None:
    design = load_reward(config("codegrep.rewards.designs.v3", beta=1))
    outcome = Outcome(("a",), frozenset("ab"), calls_per_turn=(1, 0))
    assert design(outcome) == v3(outcome, beta=1)
    assert pickle.loads(pickle.dumps(design))(outcome) == design(outcome)


def test_colon_form() -> None:
    assert load_reward(config("codegrep.rewards.designs:v3"))(OUTCOME).total == 1.0


@pytest.mark.parametrize(
    ("function", "params", "words"),
    [
        ("codegrep.rewards.designs.v33", {}, ["reward.function", "Did you mean codegrep.rewards.designs.v"]),
        (
            "codegrep.rewards.designs.swegrep",
            {},
            ["reward.function", "Did you mean codegrep.rewards.designs.swe_grep?"],
        ),
        ("codegrep.rewards.designs.zzzzzz", {}, ["codescout, colgrep, swe_grep, tiered, v1, v2, v3"]),
        ("codegrep.rewards.nowhere.v3", {}, ["reward.function", "dotted name"]),
        ("no such thing", {}, ["reward.function"]),
        ("", {}, ["reward.function"]),
        ("codegrep.rewards.designs", {}, ["reward.function", "not a function"]),
        ("codegrep.rewards.designs.v3", {"betta": 1.0}, ["reward.params.betta", "Did you mean beta?"]),
        ("codegrep.rewards.designs.v3", {"outcome": 1.0}, ["reward.params.outcome", "beta"]),
        ("codegrep.rewards.designs.v3", {"beta": "half"}, ["reward.params.beta", "'half'", "a valid number"]),
        ("codegrep.rewards.designs.v3", {"beta": True}, ["reward.params.beta"]),
        ("codegrep.rewards.designs.v3", {"beta": None}, ["reward.params.beta"]),
        ("codegrep.rewards.designs.v3", {"beta": -1.0}, ["beta must be positive"]),
        ("codegrep.rewards.designs.v1", {"match": "iou"}, ["reward.params.match", "'coverage' or 'jaccard'"]),
        ("codegrep.rewards.designs.v1", {"target": 0}, ["target must be positive"]),
        ("codegrep.rewards.designs.v1", {"count_repeated": "no"}, ["reward.params.count_repeated", "a valid boolean"]),
        ("codegrep.rewards.advantage.efficiency", {}, ["returns float", "RewardParts"]),
        ("math.pi", {}, ["not a function"]),
    ],
)
def test_mistakes_name_key_and_fix(function: str, params: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_reward(config(function, **params))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_reward_is_no_factor() -> None:
    with pytest.raises(ConfigError, match=r"advantage\.function.*returns RewardParts"):
        load_advantage(config("codegrep.rewards.designs.v3"))


def test_own_functions(own_module: types.ModuleType) -> None:
    def found_first(outcome: Outcome, *, bonus: float, **more: int) -> RewardParts:
        return RewardParts(bonus * float(outcome.predicted[:1] == ("a",)))

    def no_number(outcome: Outcome) -> RewardParts:
        return RewardParts(math.inf)

    def not_a_number(outcome: Outcome) -> float:
        return math.nan

    def broken(outcome: Outcome) -> RewardParts:
        raise KeyError("a")

    def takes_nothing() -> RewardParts:
        return RewardParts(0.0)

    for function in (found_first, no_number, not_a_number, broken, takes_nothing):
        setattr(own_module, function.__name__, function)
    assert load_reward(config("own_designs.found_first", bonus=2, extra=1))(OUTCOME).total == 2.0
    for name, words in [
        ("found_first", r"needs bonus.*Set reward\.params\.bonus"),
        ("no_number", "gave inf"),
        ("broken", "failed on a sample rollout: KeyError"),
        ("takes_nothing", "first argument must be an Outcome"),
    ]:
        with pytest.raises(ConfigError, match=words):
            load_reward(config(f"own_designs.{name}"))
    with pytest.raises(ConfigError, match="gave nan"):
        load_advantage(config("own_designs.not_a_number"))


def test_load_function_checks_without_trying() -> None:
    with pytest.raises(ConfigError, match=r"train\.params\.targget.*Did you mean target"):
        load_function(config("codegrep.rewards.advantage.efficiency", targget=1), key="train")


def test_the_ground_floor_stays_light() -> None:
    code = (
        "import sys, codegrep.rewards.load, codegrep.rewards.designs, codegrep.metrics.retrieval;"
        "import codegrep.metrics.bootstrap;"
        "print([name for name in ('ray', 'torch', 'transformers', 'mlflow', 'hydra') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_a_module_that_does_not_import_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_reward.py").write_text("def f(:\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"reward\.function: the module of 'broken_reward\.f' fails: SyntaxError"
    ) as error:
        load_reward(config("broken_reward.f"))
    assert "\n" not in str(error.value)
