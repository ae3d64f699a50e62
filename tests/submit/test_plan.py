"""The planner's arithmetic, against hand-worked values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from codegrep.errors import ConfigError
from codegrep.submit.plan.command import main
from codegrep.submit.plan.costs import Costs, with_measured
from codegrep.submit.plan.estimate import Size, first_to_break, plan, step_of
from codegrep.submit.plan.shapes import KNOWN, shape_of
from tests.sweeps.composed import PATHS, composed

PAPER = composed("+experiment=v3", "scale=paper", *PATHS)


def test_the_papers_step_has_12288_calls_of_512_rollouts() -> None:
    step = step_of(PAPER, shape_of(PAPER), Costs(), Size())
    assert step.rollouts == 64 * 8 and step.calls == 12_288
    assert step.sampled_tokens == 512 * 4096 * 0.5
    assert step.tool_cpu == pytest.approx(12_288 * Costs().call_cpu.value)


def test_model_sizes_are_those_of_the_models() -> None:
    """Qwen3-14B has 14.8 billion parameters, 13.2 without embeddings; SmolLM2 has 135 million; LoRA r=32 of it 9.8."""
    assert KNOWN["Qwen/Qwen3-14B"].parameters == pytest.approx(14.77e9, rel=0.005)
    assert KNOWN["Qwen/Qwen3-14B"].kv_bytes() == 2 * 40 * 8 * 128 * 2
    assert KNOWN["provided:smollm2-135m-instruct"].parameters == pytest.approx(134.5e6, rel=0.01)
    assert KNOWN["provided:smollm2-135m-instruct"].lora_parameters(32) == pytest.approx(9.8e6, rel=0.01)


def test_a_step_of_round_numbers() -> None:
    """One rollout of 1,000 prompt, 500 sampled, no tool tokens; 1e9 parameters; 1e12 FLOP/s and B/s; one GPU."""
    config = composed(
        *("scale=paper", *PATHS, "train.grpo.prompts_per_step=8", "train.grpo.group_size=2"),
        *("agent.max_completion_tokens=500", "train.gradient_checkpointing=false"),
    )
    costs = Costs()
    one = {
        name: replace(getattr(costs, name), value=value)
        for name, value in {
            "rollout_tokens": 1.0,
            "prompt_tokens": 1000.0,
            "observation_chars": 0.0,
            "gpu_flops": 1e12,
            "train_mfu": 1.0,
            "gpu_bandwidth": 1e12,
            "decode_mbu": 1.0,
            "decode_streams": 1e9,
        }.items()
    }
    shape = replace(KNOWN["Qwen/Qwen3-14B"], parameters=1e9, kv_heads=0)
    step = step_of(config, shape, replace(costs, **one), Size(gpus=1))
    assert step.context_tokens == 16 * 1500
    assert step.scoring == pytest.approx(2e9 * 24_000 / 1e12)
    assert step.update == pytest.approx(6e9 * 24_000 / 1e12)
    assert step.generation == pytest.approx(2e9 * 16_000 / 1e12, rel=0.01)


def test_ten_times_is_ten_times() -> None:
    shape, costs = shape_of(PAPER), Costs()
    one, ten = (plan(PAPER, shape, costs, Size(times=times)) for times in (1.0, 10.0))
    for title in ("prepare", "train: one step"):
        for a, b in zip(one.stages[title], ten.stages[title], strict=True):
            if a.what in ("bare clones, disk", "tool calls, at most", "generation"):
                assert b.value == pytest.approx(10 * a.value), a.what
    assert [limit.headroom for limit in ten.limits] == sorted(limit.headroom for limit in ten.limits)


def test_what_breaks_first_is_the_least_headroom() -> None:
    shape, costs = shape_of(PAPER), Costs()
    starved = plan(PAPER, shape, costs, Size(disk_gib=1.0)).limits
    first = first_to_break(starved)
    assert first is not None and first.what.startswith("disk")
    small = composed("+experiment=v3")
    assert first_to_break(plan(small, shape_of(small), costs, Size(cores=2, gpus=0)).limits) is None


def test_an_unknown_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"size of model\.path"):
        shape_of(composed("model.path=some/thing"))
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                **{"num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9},
                **{"num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True},
            }
        )
    )
    assert shape_of(composed(f"model.path={tmp_path}")) == KNOWN["provided:smollm2-135m-instruct"]


def test_measured_costs_replace_the_built_in_ones(tmp_path: Path) -> None:
    file = tmp_path / "costs"
    file.write_text('words\n{"costs": {"call_cpu": 0.5}}\n')
    assert with_measured(Costs(), file).call_cpu.value == 0.5
    for text in ("", "{}", '{"costs": {"cal_cpu": 1}}'):
        file.write_text(text)
        with pytest.raises(ConfigError):
            with_measured(Costs(), file)


def test_the_command_shows_stages_assumptions_and_the_first_to_break(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["+experiment=v3", "scale=paper", "--times", "10", "--disk-gib", "100"]) == 0
    said = capsys.readouterr().out
    for words in ("12", "Breaks first: ", "assumed", "Unit costs", "train: one step", "GPU h"):
        assert words in said
    assert main(["+experiment=v3", "scale=paper", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["size"]["repositories"] == 1800 and made["limits"][0]["headroom"] > 0
