from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from codegrep.engines.models import load_model, load_tokenizer
from codegrep.errors import DataError
from codegrep.training import warm_start
from codegrep.training.base_model import BaseModel
from codegrep.training.callbacks import StepLog, TimeLimit
from codegrep.training.examples import Example, make_examples
from codegrep.training.lora import adapter_sha256, attach_lora
from codegrep.training.scoring import add_scoring
from codegrep.training.warm_start import WarmStartTrainer, collate, warm_start_names
from tests.training.made_rollouts import LORA, WARM_START, issues, rollout


def _examples(count: int = 12) -> list[Example]:
    return make_examples([rollout(issue, 0, turns=1 + i % 3) for i, issue in enumerate(issues(count))], 400).examples


def _trainer(nano: Path, folder: Path, **changes: Any) -> WarmStartTrainer:
    model, tokenizer = BaseModel(str(nano), "float32").load()
    add_scoring(model)
    lora = changes.pop("lora", LORA)
    trainer = WarmStartTrainer(
        model=attach_lora(model, lora, 0),
        tokenizer=tokenizer,
        examples=changes.pop("examples", _examples()),
        settings=replace(WARM_START, **changes),
        output_dir=folder,
        seed=0,
    )
    trainer.args.save_total_limit = 20
    return trainer


def test_loss_equals_the_formula_written_out(nano: Path, tmp_path: Path) -> None:
    trainer = _trainer(nano, tmp_path)
    examples = _examples(5)
    loss = trainer.compute_loss(trainer.model, collate([examples], pad=0))
    plain = load_model(nano, "float32")
    numerator = denominator = 0.0
    with torch.no_grad():
        for example in examples:
            ids = torch.tensor(example.input_ids)
            log_p = torch.log_softmax(plain(input_ids=ids[None]).logits[0].double(), -1)
            for place, weight in enumerate(example.weights):
                if weight:
                    numerator += weight * -float(log_p[place - 1, ids[place]])
                    denominator += weight
    assert loss.item() == pytest.approx(numerator / denominator, abs=1e-5)


def test_gradient_at_tokens_without_weight_is_exactly_zero(nano: Path) -> None:
    model, _ = BaseModel(str(nano), "float32").load()
    example = _examples(1)[0]
    ids, weights = torch.tensor([example.input_ids]), torch.tensor([example.weights])
    logits = model(input_ids=ids).logits.requires_grad_()
    log_p = torch.log_softmax(logits[:, :-1], -1).gather(2, ids[:, 1:, None])[..., 0]
    (-(log_p * weights[:, 1:]).sum() / weights.sum()).backward()
    touched = logits.grad[0, :-1].abs().sum(-1) > 0
    assert torch.equal(touched, weights[0, 1:] > 0)


def test_training_lowers_the_loss_and_logs_each_step(nano: Path, tmp_path: Path) -> None:
    trainer = _trainer(nano, tmp_path, epochs=6, learning_rate=1e-2)
    seen: list[tuple[int, dict[str, float]]] = []
    trainer.add_callback(StepLog(lambda step, numbers: seen.append((step, numbers)), warm_start_names))
    trainer.train()
    assert [step for step, _ in seen] == list(range(1, trainer.args.max_steps + 1))
    assert seen[-1][1]["warm_start/loss"] < seen[0][1]["warm_start/loss"] - 0.1
    assert set(seen[0][1]) == {
        f"warm_start/{n}" for n in ("loss", "grad_norm", "learning_rate", "tokens_per_second", "weight_mean", "epoch")
    }
    assert 0 < seen[0][1]["warm_start/weight_mean"] <= 1


def test_each_step_logs_what_it_was_made_of(nano: Path, tmp_path: Path) -> None:
    """Two epochs; the loss of a step is -Σ w log p / Σ w over its tokens, the mean weight Σ w over tokens with one."""
    trainer = _trainer(nano, tmp_path, epochs=2, max_grad_norm=1e9)
    seen: list[dict[str, float]] = []
    trainer.add_callback(StepLog(lambda step, numbers: seen.append(numbers), warm_start_names))
    plan = [list(trainer.train_dataset[step]) for step in range(len(trainer.train_dataset))]
    plain = load_model(nano, "float32")
    log_p = [
        torch.log_softmax(plain(input_ids=torch.tensor([example.input_ids])).logits[0].double(), -1).detach()
        for example in plan[0]
    ]
    loss = weights = 0.0
    for example, scores in zip(plan[0], log_p, strict=True):
        for place, weight in enumerate(example.weights):
            loss -= weight * float(scores[place - 1, example.input_ids[place]]) if weight else 0.0
            weights += weight
    gradients: list[float] = []

    class Norm(TrainerCallback):
        def on_pre_optimizer_step(self, *args: Any, model: Any, **kwargs: Any) -> None:
            parts = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
            gradients.append(float(torch.cat(parts).norm()))

    trainer.add_callback(Norm())
    trainer.train()
    assert seen[0]["warm_start/loss"] == pytest.approx(loss / weights, abs=1e-5)
    assert [row["warm_start/grad_norm"] for row in seen] == pytest.approx(gradients, rel=1e-4)
    for number, (row, examples) in enumerate(zip(seen, plan, strict=True), 1):
        values = [weight for example in examples for weight in example.weights if weight]
        assert row["warm_start/weight_mean"] == pytest.approx(sum(values) / len(values))
        assert row["warm_start/epoch"] == pytest.approx(2 * number / len(plan))
        assert row["warm_start/tokens_per_second"] > 0
    assert seen[-1]["warm_start/epoch"] == 2


def test_throughput_and_weight_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows, supervised up to their 4th and 3rd token; 7 tokens in 2 s, weights of 1, 0.5 and 0.3."""
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(warm_start.time, "monotonic", lambda: next(clock))
    window = warm_start._Window()
    window.add(torch.tensor([[0, 1.0, 0, 0.5, 0], [0, 0, 0.3, 0, 0]]))
    assert window.close() == pytest.approx({"tokens_per_second": 3.5, "weight_mean": 0.6})


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_resume_is_bit_exact(nano: Path, tmp_path: Path, dropout: float) -> None:
    lora = replace(LORA, dropout=dropout)
    whole = _trainer(nano, tmp_path / "whole", lora=lora, epochs=3)
    whole.train()
    middle = tmp_path / "whole" / "checkpoint-4"
    assert middle.is_dir() and whole.args.max_steps == 6
    again = _trainer(nano, tmp_path / "again", lora=lora, epochs=3)
    again.train(resume_from_checkpoint=str(middle))
    assert adapter_sha256(again.model) == adapter_sha256(whole.model)


def test_time_limit_stops_with_a_checkpoint_and_says_so(nano: Path, tmp_path: Path) -> None:
    trainer = _trainer(nano, tmp_path, epochs=20)
    limit = TimeLimit(minutes=0.1, resumed=5.9)
    trainer.add_callback(limit)
    trainer.train()
    assert 0 < trainer.state.global_step < trainer.args.max_steps
    assert (tmp_path / f"checkpoint-{trainer.state.global_step}").is_dir()
    assert limit.reason.startswith(f"stopped after step {trainer.state.global_step} of {trainer.args.max_steps}")


def test_no_examples_is_an_error_before_training(nano: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no trajectory"):
        _trainer(nano, tmp_path, examples=[])


def test_pad_token_is_the_tokenizers(nano: Path) -> None:
    pad = load_tokenizer(nano).pad_token_id
    batch = collate([_examples(3)], pad)
    assert batch["input_ids"].shape == batch["weights"].shape
    assert not batch["weights"][batch["input_ids"] == pad].any()
