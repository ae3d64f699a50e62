"""Training all weights in place of an adapter: scores, steps, the reference, and what the engine generates with."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from codegrep.compose import compose_overrides, load
from codegrep.engines.engine import GenerationRequest, Sampling
from codegrep.engines.models import load_model
from codegrep.engines.transformers_engine import TransformersEngine
from codegrep.engines.weight_sync import SharedModelEngine
from codegrep.errors import ConfigError
from codegrep.pipeline.policies.engines import backend_of
from codegrep.training.base_model import BaseModel, keep_model
from codegrep.training.callbacks import StepLog
from codegrep.training.examples import make_examples
from codegrep.training.grpo import CodegrepGRPOTrainer
from codegrep.training.grpo_setup import grpo_arguments
from codegrep.training.scoring import add_scoring
from codegrep.training.signals import load_signal
from codegrep.training.warm_start import WarmStartTrainer
from tests.training.made_rollouts import GRPO, WARM_START, Made, issues, rollout

CONFIG = load(compose_overrides(["+experiment=v3"]))


def _trainer(nano: Path, folder: Path, collect: Any = None, **changes: Any) -> CodegrepGRPOTrainer:
    model, tokenizer = BaseModel(str(nano), "float32").load(trainable=True)
    add_scoring(model)
    return CodegrepGRPOTrainer(
        model=model,
        tokenizer=tokenizer,
        issues=issues(6),
        collect=collect or Made().collect,
        signal=load_signal(CONFIG.reward, CONFIG.advantage, CONFIG.governance),
        lora=None,
        settings=replace(GRPO, steps=2, learning_rate=1e-3, **changes),
        max_completion_tokens=64,
        output_dir=folder,
        seed=0,
    )


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def test_the_optimisers_keys_reach_the_optimiser(nano: Path, tmp_path: Path) -> None:
    settings = replace(GRPO, learning_rate=3e-6, scheduler="constant", adam_beta2=0.98, weight_decay=0.1)
    arguments = grpo_arguments(settings, tmp_path, 0, workers=1, max_completion_tokens=64, use_cpu=True)
    assert (arguments.adam_beta1, arguments.adam_beta2, arguments.weight_decay) == (0.9, 0.98, 0.1)
    trainer = _trainer(nano, tmp_path, adam_beta2=0.98, weight_decay=0.1, scheduler="constant")
    trainer.train()
    decayed = trainer.optimizer.param_groups[0]
    assert decayed["betas"] == (0.9, 0.98) and decayed["weight_decay"] == 0.1 and decayed["lr"] == 1e-3


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_and_gradients_with_a_trained_head_equal_whole_logits(nano: Path, temperature: float) -> None:
    model = load_model(nano, "float32")
    model.requires_grad_(True)
    ids = torch.randint(5, 300, (3, 20), generator=torch.Generator().manual_seed(3))
    scored = torch.zeros(ids.shape, dtype=torch.bool)
    scored[:, 9:] = True
    logits = model(input_ids=ids).logits[:, :-1].float() / temperature
    wanted = torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None])[..., 0]
    wanted = torch.nn.functional.pad(wanted, (1, 0)) * scored
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(wanted.square().sum(), parameters)
    add_scoring(model)
    got = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), scored=scored, prompt_length=8, temperature=temperature
    )
    torch.testing.assert_close(got.logprobs, wanted, rtol=1e-4, atol=1e-5)
    for own, whole in zip(torch.autograd.grad(got.logprobs.square().sum(), parameters), gradients, strict=True):
        torch.testing.assert_close(own, whole, rtol=1e-3, atol=1e-4)


def test_a_step_changes_the_weights_and_kl_is_measured_from_the_start(nano: Path, tmp_path: Path) -> None:
    seen: dict[int, dict[str, float]] = {}
    trainer = _trainer(nano, tmp_path, kl=0.02)
    start = _weights(trainer.policy)
    trainer.add_callback(StepLog(lambda step, numbers: seen.setdefault(step, numbers), trainer.grpo_names))
    trainer.train()
    changed = [name for name, tensor in trainer.policy.state_dict().items() if not torch.equal(tensor, start[name])]
    assert sorted(changed) == sorted(start)  # every tensor, the embedding and the head with it
    reference = trainer.accelerator.unwrap_model(trainer.ref_model).state_dict()
    assert all(torch.equal(reference[name], tensor) for name, tensor in start.items())
    assert seen[1]["policy/kl"] == pytest.approx(0.0, abs=1e-7) and seen[2]["policy/kl"] > 1e-6


def test_no_copy_of_the_model_is_kept_where_kl_is_not_scored(nano: Path, tmp_path: Path) -> None:
    trainer = _trainer(nano, tmp_path, kl=0.0, measure_kl=False)
    assert trainer.ref_model is None
    trainer.train()


def test_a_checkpoint_becomes_a_model_that_computes_the_same(nano: Path, tmp_path: Path) -> None:
    trainer = _trainer(nano, tmp_path / "training")
    trainer.train()
    keep_model(tmp_path / "training" / "checkpoint-2", nano, tmp_path / "model")
    kept = load_model(tmp_path / "model", "float32")
    ids = torch.arange(5, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(kept(input_ids=ids).logits, trainer.policy.eval()(input_ids=ids).logits)
    assert not [path.name for path in (tmp_path / "model").iterdir() if path.suffix in (".pt", ".pth", ".bin")]
    assert (tmp_path / "model" / "tokenizer.json").is_file()


def test_training_goes_on_from_a_checkpoint_to_the_same_weights(nano: Path, tmp_path: Path) -> None:
    whole = _trainer(nano, tmp_path / "whole", kl=0.02)
    whole.train()
    again = _trainer(nano, tmp_path / "again", kl=0.02)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-1"))
    for name, tensor in whole.policy.state_dict().items():
        assert torch.equal(again.policy.state_dict()[name], tensor), name


def test_the_engine_in_the_process_generates_with_the_weights_of_each_step(nano: Path, tmp_path: Path) -> None:
    """With all weights trained, greedy tokens after a large step are those of the changed model, not the old one's."""
    made, said = Made(), []
    request = GenerationRequest(tuple(range(5, 90)), Sampling(12, 0.0))

    def collect(wanted: Any, size: int, step: int) -> Any:
        if not hasattr(trainer, "engine"):
            inner = TransformersEngine(trainer.policy, pad_id=0, stop_ids=frozenset(), context=512, max_batch=4)
            trainer.engine = SharedModelEngine(inner)

        async def ask() -> Any:
            await trainer.engine.follow(step)
            return await trainer.engine.generate(request)

        answer = asyncio.run(ask())
        with torch.no_grad():
            ids = list(request.prompt_ids)
            for _ in range(12):
                ids.append(int(trainer.policy(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        said.append((list(answer.token_ids), ids[len(request.prompt_ids) :]))
        return made.collect(wanted, size, step)

    trainer = _trainer(nano, tmp_path, collect)
    trainer.args.learning_rate = 0.05
    trainer.train()
    assert all(engine == model for engine, model in said) and said[0] != said[1]


def test_the_warm_start_trains_all_weights(nano: Path, tmp_path: Path) -> None:
    model, tokenizer = BaseModel(str(nano), "float32").load(trainable=True)
    add_scoring(model)
    start = _weights(model)
    examples = make_examples([rollout(issue, 0) for issue in issues(6)], 400).examples
    trainer = WarmStartTrainer(
        model=model, tokenizer=tokenizer, examples=examples, settings=WARM_START, output_dir=tmp_path, seed=0
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert all(not torch.equal(tensor, start[name]) for name, tensor in model.state_dict().items())


def test_what_cannot_work_is_refused_in_one_line() -> None:
    full = ("+experiment=v3", "train.full_parameters=true")
    assert load(compose_overrides(full)).model.dtype == "float32"
    with pytest.raises(ConfigError, match=r"full_parameters=true loses small steps with model\.dtype=bfloat16"):
        load(compose_overrides([*full, "model.dtype=bfloat16"]))
    config = load(compose_overrides([*full, "model.dtype=float32", "engine=vllm"]))
    with pytest.raises(ConfigError, match=r"train\.full_parameters.*engine=transformers"):
        backend_of(config.engine).check(config)
    config = load(compose_overrides([*full, "model.dtype=float32"]))
    backend_of(config.engine).check(config)
