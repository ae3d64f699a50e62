"""scale=paper is each source's own run: every value that a source states, by experiment; the command line wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from codegrep.compare.paper_command import differences
from codegrep.compose import CONF, compose_overrides, load
from codegrep.errors import ConfigError
from tests.sweeps.composed import PATHS

EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
BENCH = ("data.sources.swe_bench.args.path=rebench.parquet",)
GIVEN = {
    **dict.fromkeys(("v1", "v2", "v3"), PATHS),
    **dict.fromkeys(("swe_grep", "signal_reshaping", "codescout"), BENCH),
    "colgrep": ("data.sources.git_history.args.path=clones",),
}
# CodeGrep, arXiv 2608.05886: 3.2 to 3.6, A.1 to A.4.
CODEGREP = {
    "model.path": "Qwen/Qwen3-14B",
    "train.full_parameters": False,
    "train.lora.r": 32,
    "train.lora.alpha": 64,
    "train.warm_start.enabled": False,
    "train.early_stop.enabled": True,
    "train.workers": 8,
    "train.grpo.steps": 2000,
    "train.grpo.prompts_per_step": 64,
    "train.grpo.group_size": 8,
    "train.grpo.learning_rate": 5e-6,
    "train.grpo.scheduler": "cosine",
    "train.grpo.warmup_share": 0.05,
    "train.grpo.temperature": 1.0,
    "train.grpo.top_p": 0.9,
    "train.grpo.top_k": 50,
    "train.grpo.kl": 0.02,
    "agent.prompt": "detailed",
    "agent.exploration_turns": 3,
    "agent.max_completion_tokens": 4096,
    "tools.max_calls": 8,
    "tools.max_matches": 50,
    "tools.max_lines": 200,
    "tools.max_chars": 4096,
    "tools.observation": "results",
    "tools.exclude_tests": False,
    "tools.grep_timeout": 10.0,
    "tools.glob_timeout": 10.0,
    "tools.read_timeout": 5.0,
    "tools.concurrency": 64,
    "engine.vllm.tensor_parallel": 8,
    "engine.vllm.memory_share": 0.35,
    "engine.vllm.prefix_caching": True,
    "engine.vllm.placement": "shared",
    "engine.sync.max_staleness": 0,
    "labels.enabled": True,
    "labels.keep_unlabelled": False,
    "labels.gold_tests": True,
    "labels.tests": True,
    "labels.min_tokens": 30,
    "labels.min_weight": 0.15,
    "labels.granularity": "trajectory",
    "labels.with_thought": False,
    "judge.name": "llm",
    "judge.params.concurrency": 16,
    "judge.params.timeout": 60.0,
    "data.sources.swe_bench.args.gold_tests": True,
    "reward.params.beta": 0.5,
}
EFFICIENCY = {"advantage.name": "efficiency", "advantage.params.target": 4.0, "advantage.scale": "group"}
NO_MINING = {"labels.enabled": False}
STATED: dict[str, dict[str, Any]] = {
    "v1": {**CODEGREP, "reward.name": "v1", "reward.params.target": 4.0, "advantage.name": "none"},
    "v2": {**CODEGREP, **EFFICIENCY, "reward.name": "v2"},
    "v3": {**CODEGREP, **EFFICIENCY, "reward.name": "v3"},
    # Cognition, blog post of 16 October 2025.
    "swe_grep": {
        **NO_MINING,
        "reward.name": "swe_grep",
        "reward.params.beta": 0.5,
        "reward.params.malformed_is_zero": True,
        "advantage.name": "mean_calls",
        "advantage.baseline": "loo",
        "advantage.scale": "none",
        "agent.prompt": "detailed",
        "agent.exploration_turns": 3,
        "tools.max_calls": 8,
        "train.warm_start.enabled": False,
        "train.grpo.kl": 0.0,
        "train.grpo.loss_type": "dr_grpo",
        "train.grpo.sampling_correction": "sequence",
        "governance.name": "overlong",
    },
    # arXiv 2610.05099.
    "colgrep": {
        **NO_MINING,
        "data.name": "git_history",
        "model.path": "Qwen/Qwen3-1.7B",
        "model.context": 32768,
        "agent.exploration_turns": 9,
        "agent.max_turn_tokens": 1024,
        "tools.max_calls": 5,
        "reward.params.free_turns": 2,
        "reward.params.turn_cost": 0.01,
        "reward.params.most_turn_cost": 0.08,
        "reward.params.penalty": 0.5,
        "advantage.scale": "none",
        "train.full_parameters": True,
        "train.warm_start.enabled": True,
        "train.warm_start.epochs": 1,
        "train.warm_start.learning_rate": 2e-5,
        "train.warm_start.warmup_share": 0.03,
        "train.warm_start.weight_decay": 0.0,
        "train.warm_start.max_grad_norm": 1.0,
        "train.warm_start.credit_new_gold": 1.0,
        "train.warm_start.credit_seen_gold": 0.6,
        "train.warm_start.credit_no_gold": 0.3,
        "train.warm_start.credit_empty": 0.05,
        "train.grpo.steps": 500,
        "train.grpo.prompts_per_step": 8,
        "train.grpo.group_size": 16,
        "train.grpo.learning_rate": 1e-6,
        "train.grpo.temperature": 1.0,
        "train.grpo.kl": 0.0,
        "train.grpo.dead_groups": "drop",
    },
    # arXiv 2605.07276: 3.1 to 3.4 and the training set-up.
    "signal_reshaping": {
        **NO_MINING,
        "model.path": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
        "model.context": 40960,
        "agent.exploration_turns": 49,
        "agent.max_turn_tokens": 8192,
        "reward.name": "tiered",
        "advantage.scale": "group",
        "governance.max_calls": 5,
        "governance.repetition_times": 30,
        "governance.masked_in_group": True,
        "governance.infrastructure_in_group": True,
        "turn_scores.floor": 0.1,
        "train.grpo.prompts_per_step": 8,
        "train.grpo.group_size": 8,
        "train.grpo.learning_rate": 3e-6,
        "train.grpo.scheduler": "constant",
        "train.grpo.warmup_share": 0.0,
        "train.grpo.adam_beta1": 0.9,
        "train.grpo.adam_beta2": 0.98,
        "train.grpo.weight_decay": 0.1,
        "train.grpo.temperature": 1.0,
        "train.grpo.top_p": 1.0,
        "train.grpo.top_k": 0,
        "train.grpo.kl": 0.01,
        "train.grpo.kl_estimator": "k3",
        "train.grpo.clip_low": 0.2,
        "train.grpo.clip_high": 0.28,
    },
    # CodeScout's 14B agent.
    "codescout": {
        **NO_MINING,
        "data.gold_entities": True,
        "model.path": "Qwen/Qwen3-14B",
        "model.context": 32768,
        "agent.prompt": "entities",
        "agent.exploration_turns": 5,
        "reward.params.beta": 1.0,
        "reward.params.bonus": 1.0,
        "reward.params.bonus_turns": 4,
        "advantage.scale": "none",
        "train.grpo.learning_rate": 1e-6,
        "train.grpo.kl": 0.0,
        "train.grpo.importance": "sequence",
        "train.grpo.clip_low": 3e-4,
        "train.grpo.clip_high": 4e-4,
    },
}


def paper(experiment: str, *more: str) -> list[str]:
    return [f"+experiment={experiment}", "scale=paper", *GIVEN[experiment], *more]


@pytest.mark.parametrize(
    ("experiment", "key", "value"), [(name, key, value) for name, of in STATED.items() for key, value in of.items()]
)
def test_what_a_source_states(experiment: str, key: str, value: Any) -> None:
    assert OmegaConf.select(_composed(experiment), key, throw_on_missing=False) == value


def _composed(experiment: str, known: dict[str, Any] = {}) -> Any:  # noqa: B006  # composed once each
    if experiment not in known:
        known[experiment] = compose_overrides(paper(experiment))
        load(known[experiment])
    return known[experiment]


def test_every_experiment_has_its_values() -> None:
    assert sorted(STATED) == EXPERIMENTS
    assert sorted(path.stem for path in (CONF / "paper").glob("*.yaml")) == sorted([*EXPERIMENTS, "codegrep"])


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_what_has_to_be_given_is_one_line(experiment: str) -> None:
    keys = sorted(word.partition("=")[0] for word in GIVEN[experiment])
    with pytest.raises(ConfigError, match=f"^{', '.join(keys)} (is|are) not set") as raised:
        load(compose_overrides(paper(experiment)[:2]))
    assert "\n" not in str(raised.value)


def test_the_command_line_wins() -> None:
    groups = ["labels=gold_patch", "model=qwen3_1_7b", "data=demo", "judge=rules", "engine=transformers"]
    keys = ["train.grpo.learning_rate=1e-3", "tools.max_calls=4"]
    config = load(compose_overrides(["+experiment=v3", "scale=paper", *groups, *keys]))
    assert (config.labels.enabled, config.model.path, config.data.name) == (False, "Qwen/Qwen3-1.7B", "demo")
    assert (config.judge.name, config.engine.vllm, config.train.grpo.learning_rate) == ("rules", None, 1e-3)
    assert config.tools.max_calls == 4
    config = load(compose_overrides(paper("colgrep", "model=qwen3_14b", "train.full_parameters=false")))
    assert config.model.path == "Qwen/Qwen3-14B"


@pytest.mark.parametrize("scale", ["laptop", "one_gpu", "debug"])
def test_elsewhere_the_scale_says_sizes_and_rates(scale: str) -> None:
    """What an experiment leaves to the scale is the same for all of them."""
    sizes = ("model.path", "train.grpo.learning_rate", "train.grpo.group_size", "train.grpo.prompts_per_step")
    made = [compose_overrides([f"+experiment={name}", f"scale={scale}"]) for name in EXPERIMENTS]
    for key in (*sizes, "train.grpo.top_p", "train.grpo.scheduler", "train.full_parameters", "labels.enabled"):
        assert len({str(OmegaConf.select(cfg, key)) for cfg in made}) == 1, key


def test_without_an_experiment_it_is_the_default_designs() -> None:
    bare, v3 = (compose_overrides(["scale=paper", *PATHS, *more]) for more in ([], ["+experiment=v3"]))
    assert {**bare, "name": ""} == {**v3, "name": ""}


def test_an_experiment_of_ones_own_names_its_values(tmp_path: Path) -> None:
    for folder, text in (("experiment", "name: mine\n"), ("paper", "defaults: [colgrep]\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.yaml").write_text(f"# @package _global_\n{text}")
    own = f"hydra.searchpath=[file://{tmp_path}]"
    cfg = compose_overrides(["+experiment=mine", "scale=paper", own])
    assert (cfg.name, cfg.train.grpo.learning_rate, cfg.train.full_parameters) == ("mine", 1e-6, True)
    (tmp_path / "paper" / "mine.yaml").unlink()
    with pytest.raises(ConfigError, match="there is no paper called 'mine'"):
        compose_overrides(["+experiment=mine", "scale=paper", own])


def test_where_a_run_departs_from_its_source() -> None:
    rows = {key: (there, here) for key, there, here in differences(["+experiment=signal_reshaping"])}
    assert rows["train.grpo.learning_rate"] == ("3e-06", "0.0001") and rows["train.grpo.top_p"] == ("1.0", "0.9")
    assert rows["train.grpo.adam_beta2"] == ("0.98", "0.999") and "train.grpo.kl" not in rows
    assert "train.workers" not in rows  # the machine's
    assert differences(["+experiment=signal_reshaping", "scale=paper"]) == []
    assert differences(["+experiment=v3", "scale=paper", "train.grpo.kl=0"]) == [("train.grpo.kl", "0.02", "0")]
