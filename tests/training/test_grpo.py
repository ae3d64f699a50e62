from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from codegrep.config import GRPOSettings, SyncConfig
from codegrep.errors import ConfigError, DataError, InfrastructureError
from codegrep.rewards.advantage import Scale, efficiency
from codegrep.rewards.designs import v3
from codegrep.rewards.signal import TrainingSignal, batch_advantages, score_rollout
from codegrep.rollout.outcome import conduct_of, outcome_of
from codegrep.rollout.record import Rollout
from codegrep.training import scoring
from codegrep.training.base_model import BaseModel
from codegrep.training.callbacks import StepLog
from codegrep.training.grpo import CodegrepGRPOTrainer
from codegrep.training.grpo_setup import grpo_arguments, schedule
from codegrep.training.lora import adapter_sha256
from codegrep.training.scoring import add_scoring
from codegrep.training.token_metrics import LogprobGap
from tests.training.made_rollouts import GRPO, LORA, Made, issues, lost

SIGNAL = TrainingSignal(v3, efficiency)


def _trainer(
    nano: Path,
    folder: Path,
    collector: Made,
    *,
    signal: TrainingSignal = SIGNAL,
    fast: bool = True,
    sync: SyncConfig | None = None,
    **changes: Any,
) -> CodegrepGRPOTrainer:
    model, tokenizer = BaseModel(str(nano), "float32").load()
    add_scoring(model)
    trainer = CodegrepGRPOTrainer(
        model=model,
        tokenizer=tokenizer,
        issues=issues(6),
        collect=collector.collect,
        signal=signal,
        lora=LORA,
        settings=replace(GRPO, **changes),
        max_completion_tokens=64,
        output_dir=folder,
        seed=0,
        sync=sync,
    )
    trainer.fast_scoring = fast
    return trainer


def _batch(trainer: CodegrepGRPOTrainer, prompts: int = 2) -> tuple[dict[str, Any], list[Rollout]]:
    rows = [{"prompt": f"o__r-{i}"} for i in range(prompts) for _ in range(GRPO.group_size)]
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer._generate_and_score_completions(rows), [one.rollout for one in trainer._batch]


def _nudge(trainer: CodegrepGRPOTrainer) -> None:
    generator = torch.Generator().manual_seed(5)
    for name, parameter in trainer.model.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_gradient_is_zero_exactly_on_what_was_not_sampled(
    nano: Path, tmp_path: Path, fast: bool, loss_type: str
) -> None:
    trainer = _trainer(nano, tmp_path, Made(), fast=fast, loss_type=loss_type, prompts_per_microbatch=2)
    batch, rollouts = _batch(trainer)
    kept: list[torch.Tensor] = []
    original = type(trainer)._get_per_token_logps_and_entropies

    def keeping(*args: Any, **kwargs: Any) -> Any:
        scores = original(trainer, *args, **kwargs)
        if scores[0].requires_grad:
            scores[0].retain_grad()
            kept.append(scores[0])
        return scores

    trainer._get_per_token_logps_and_entropies = keeping  # type: ignore[method-assign]
    _nudge(trainer)  # so that the policy is off its reference and KL has a gradient too
    trainer._compute_loss(trainer.model, batch).backward()
    (logps,) = kept
    gradient = logps.grad
    assert gradient is not None
    tool_tokens = sampled_tokens = 0
    for row, rollout in enumerate(rollouts):
        mask = torch.tensor(rollout.loss_mask, dtype=torch.bool)
        own = gradient[row, : len(mask)]
        assert torch.all(own[mask] != 0) and torch.all(own[~mask] == 0)
        assert torch.all(gradient[row, len(mask) :] == 0)
        tool_tokens += int((~mask).sum())
        sampled_tokens += int(mask.sum())
    assert tool_tokens > 20 and sampled_tokens > 20


def test_tokens_in_the_loss_are_the_sampled_ones(nano: Path, tmp_path: Path) -> None:
    trainer = _trainer(nano, tmp_path, Made())
    batch, rollouts = _batch(trainer)
    trained = batch["completion_mask"] * batch["tool_mask"]
    for row, rollout in enumerate(rollouts):
        mask = trained[row].bool()
        assert batch["completion_ids"][row][mask].tolist() == [
            token for token, sampled in zip(rollout.completion_ids, rollout.loss_mask, strict=True) if sampled
        ]
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
        assert prompt == rollout.prompt_ids


@pytest.mark.parametrize("scale", ["group", "none", "batch"])
def test_the_signals_advantages_are_what_trains(nano: Path, tmp_path: Path, scale: Scale) -> None:
    signal = replace(SIGNAL, scale=scale)
    batch, rollouts = _batch(_trainer(nano, tmp_path, Made([(0, 2), (0, 5)]), signal=signal))
    scores = [score_rollout(outcome_of(r), conduct_of(r), signal) for r in rollouts]
    scored = batch_advantages(scores, np.arange(len(scores)) // GRPO.group_size, signal)
    assert np.allclose(batch["advantages"].numpy(), scored.advantages, atol=1e-6)
    assert len({round(f, 3) for f in scored.factors}) > 2 and np.abs(scored.advantages).max() > 0


@pytest.mark.parametrize("scale", ["group", "none", "batch"])
def test_trls_own_normalisation_gives_the_same(nano: Path, tmp_path: Path, scale: Scale) -> None:
    """TRL's advantages, which are replaced, times the factors. It divides by no group's own spread of 0."""
    trainer = _trainer(nano, tmp_path, Made([(0, 2)]), signal=replace(SIGNAL, scale=scale))
    trainer.scale_rewards = scale
    trls: list[torch.Tensor] = []
    shape = trainer.shape_advantages
    trainer.shape_advantages = lambda advantages, width: trls.append(advantages) or shape(advantages, width)  # type: ignore
    batch, _ = _batch(trainer)
    factors = torch.tensor([one.score.factor for one in trainer._batch])
    assert torch.allclose(batch["advantages"], trls[0] * factors, atol=1e-5) and batch["advantages"].abs().max() > 0


def test_lost_rollouts_are_in_nothing(nano: Path, tmp_path: Path) -> None:
    trainer = _trainer(nano, tmp_path, Made([(0, 1), (0, 4), (0, 5), (0, 6)]), prompts_per_microbatch=2)
    batch, rollouts = _batch(trainer)
    gone = torch.tensor([r.exit_cause == "infrastructure" for r in rollouts])
    trained = (batch["completion_mask"] * batch["tool_mask"]).sum(1)
    assert torch.equal(trained == 0, gone)
    assert torch.all(batch["advantages"][gone] == 0)
    # A group with one survivor has nothing to be compared with.
    assert torch.all(batch["advantages"][4:] == 0)
    _nudge(trainer)
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in trainer.model.parameters() if p.grad is not None)


def test_a_batch_that_was_lost_whole_changes_no_weight(nano: Path, tmp_path: Path) -> None:
    lose = [(0, place) for place in range(8)]
    trainer = _trainer(nano, tmp_path, Made(lose), steps=1)
    before = adapter_sha256(trainer.policy)
    trainer.train()
    assert adapter_sha256(trainer.policy) == before


class TooLong(Made):
    """Every rollout of one issue, or of all, ends before its first token: the prompt exceeds the context."""

    def __init__(self, every: bool) -> None:
        super().__init__()
        self.every, self.first = every, ""

    def collect(self, wanted: Any, group_size: int, step: int) -> list[Rollout]:
        self.first = self.first or wanted[0].instance_id
        by_id = {issue.instance_id: issue for issue in wanted}
        return [
            replace(lost(by_id[one.instance_id]), prompt_ids=[7] * 9000, exit_cause="prompt_too_long", error="")
            if self.every or one.instance_id == self.first
            else one
            for one in super().collect(wanted, group_size, step)
        ]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("every", [True, False])
def test_an_issue_longer_than_the_context_is_counted_and_ends_no_training(
    nano: Path, tmp_path: Path, every: bool, fast: bool
) -> None:
    """The nano model has positions for far fewer tokens than the prompt has."""
    trainer = _trainer(nano, tmp_path, TooLong(every), fast=fast, steps=1)
    before = adapter_sha256(trainer.policy)
    trainer.train()
    numbers = trainer.own_metrics
    assert numbers["rollout/exit_prompt_too_long"] == (1.0 if every else 0.5)
    assert numbers["masked/prompt_too_long"] == (8 if every else 4) and numbers["errors/infrastructure"] == 0
    assert (adapter_sha256(trainer.policy) == before) is every
    assert ("reward/total" in numbers) is not every and ("policy/kl" in numbers) is not every


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_fast_scoring_gives_trls_own_loss_and_gradient(
    nano: Path, tmp_path: Path, loss_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "SHAPE", 4)  # so that these short prompts are shared
    results = []
    for fast in (True, False):
        trainer = _trainer(nano, tmp_path, Made([(0, 3)]), fast=fast, loss_type=loss_type, prompts_per_microbatch=2)
        _nudge(trainer)
        batch, _ = _batch(trainer)
        loss = trainer._compute_loss(trainer.model, batch)
        loss.backward()
        results.append((loss, {n: p.grad for n, p in trainer.model.named_parameters() if p.grad is not None}))
    (fast_loss, fast_grads), (plain_loss, plain_grads) = results
    assert fast_loss.item() == pytest.approx(plain_loss.item(), abs=1e-6)
    for name, grad in plain_grads.items():
        assert torch.allclose(fast_grads[name], grad, atol=1e-6, rtol=1e-3), name


def test_the_reference_is_the_model_with_the_adapter_off(nano: Path, tmp_path: Path) -> None:
    trainer = _trainer(nano, tmp_path, Made())
    first, _ = _batch(trainer)
    _nudge(trainer)
    second, _ = _batch(trainer)
    assert torch.allclose(first["ref_per_token_logps"], second["ref_per_token_logps"], atol=1e-6)
    assert trainer.ref_model is None


def test_steps_train_and_log_under_the_projects_names(nano: Path, tmp_path: Path) -> None:
    collector = Made([(1, 0)])
    trainer = _trainer(nano, tmp_path, collector)
    seen: list[tuple[int, dict[str, float]]] = []
    trainer.add_callback(StepLog(lambda step, numbers: seen.append((step, numbers)), trainer.grpo_names))
    before = adapter_sha256(trainer.policy)
    trainer.train()
    assert adapter_sha256(trainer.policy) != before
    assert collector.steps == [0, 1, 2, 3]
    steps = {step: numbers for step, numbers in seen if "optim/loss" in numbers}
    assert sorted(steps) == [1, 2, 3, 4]
    wanted = (
        "reward/total policy/kl policy/entropy policy/clip_ratio_region optim/grad_norm optim/learning_rate "
        "completions/clipped_ratio completions/generated advantage/factor advantage/mean_abs group/dead_rate "
        "group/best rollout/turns rollout/tool_turns rollout/calls_per_turn rollout/f05 rollout/precision "
        "rollout/recall rollout/answered errors/parse errors/infrastructure errors/refused_calls seconds/generation "
        "seconds/tools seconds/reference seconds/update seconds/step"
    ).split()
    assert not [name for name in wanted if name not in steps[1]]
    assert steps[2]["errors/infrastructure"] == 1 and steps[1]["errors/infrastructure"] == 0
    assert steps[1]["policy/kl"] == pytest.approx(0, abs=1e-6) and steps[4]["policy/kl"] > 0
    assert steps[1]["seconds/update"] > 0


def test_logprobs_at_sampling_are_compared_not_trained_on(nano: Path, tmp_path: Path) -> None:
    class WithLogprobs(Made):
        def collect(self, *args: Any) -> list[Rollout]:
            made = super().collect(*args)
            for rollout in made:
                ids = torch.tensor(rollout.prompt_ids + rollout.completion_ids)
                with torch.no_grad():
                    log_p = torch.log_softmax(trainer.policy(input_ids=ids[None]).logits[0], -1)
                start = len(rollout.prompt_ids)
                rollout.logprobs = [
                    float(log_p[start + i - 1, token]) if mask else 0.0
                    for i, (token, mask) in enumerate(zip(rollout.completion_ids, rollout.loss_mask, strict=True))
                ]
            return made

    seen: dict[int, dict[str, float]] = {}
    trainer = _trainer(nano, tmp_path, WithLogprobs(), steps=2)
    trainer.add_callback(StepLog(lambda step, numbers: seen.setdefault(step, numbers), trainer.grpo_names))
    trainer.train()
    assert seen[2]["policy/logprob_gap"] < 1e-5  # the engine had the weights of step 1


def _with_logprobs(holder: dict[str, Any], shift: float) -> Made:
    """Rollouts with the policy's own log-probabilities, each `shift` nats too low."""

    class WithLogprobs(Made):
        def collect(self, *args: Any) -> list[Rollout]:
            made = super().collect(*args)
            for rollout in made:
                ids = torch.tensor(rollout.prompt_ids + rollout.completion_ids)
                with torch.no_grad():
                    log_p = torch.log_softmax(holder["trainer"].policy(input_ids=ids[None]).logits[0], -1)
                start = len(rollout.prompt_ids)
                rollout.logprobs = [
                    float(log_p[start + i - 1, token]) - shift if mask else 0.0
                    for i, (token, mask) in enumerate(zip(rollout.completion_ids, rollout.loss_mask, strict=True))
                ]
            return made

    return WithLogprobs()


def _never_enough() -> SyncConfig:
    """More than a share can be, so that every step is below it."""
    sync = SyncConfig()
    sync.min_ess = 1.1
    return sync


@pytest.mark.parametrize(
    ("sync", "said"),
    [
        (SyncConfig(max_logprob_gap=0.2), r"0\.5 nats a token apart.*engine\.sync\.max_logprob_gap=0\.2"),
        (_never_enough(), r"effective sample size of 100\.0%.*min_ess"),
    ],
)
def test_training_stops_where_the_engine_is_another_policy(
    nano: Path, tmp_path: Path, sync: SyncConfig, said: str
) -> None:
    holder: dict[str, Any] = {}
    trainer = holder["trainer"] = _trainer(nano, tmp_path, _with_logprobs(holder, 0.5), steps=2, sync=sync)
    with pytest.raises(InfrastructureError, match=said):
        trainer.train()


def test_gap_and_effective_sample_size_by_hand() -> None:
    gap = LogprobGap.of(torch.tensor([0.0, float(np.log(3))]))
    assert gap.mean == pytest.approx(np.log(3) / 2) and gap.largest == pytest.approx(np.log(3))
    assert gap.ratio == pytest.approx(2.0)  # (1 + 3) / 2
    assert gap.ess == pytest.approx(16 / (2 * 10))  # (1 + 3)^2 / (2 (1 + 9))
    assert LogprobGap.of(torch.zeros(5)).ess == pytest.approx(1.0)


def test_the_gap_of_several_workers_is_that_of_their_tokens_together() -> None:
    whole = torch.tensor([0.0, 0.5, -1.0, 0.2, 2.0])
    pooled = LogprobGap.pooled([LogprobGap.of(whole[:1]), LogprobGap.of(whole[1:])])
    assert vars(pooled) == pytest.approx(vars(LogprobGap.of(whole)))


@pytest.mark.parametrize(("shift", "weight"), [(0.0, 1.0), (0.5, float(np.exp(0.5))), (5.0, 3.0)])
def test_stale_rollouts_count_by_the_truncated_ratio(nano: Path, tmp_path: Path, shift: float, weight: float) -> None:
    """With kl=0 the gradient is the policy term alone; one shift for all tokens scales it by min(exp(shift), 3)."""

    def gradient(sync: SyncConfig) -> dict[str, torch.Tensor]:
        holder: dict[str, Any] = {}
        trainer = holder["trainer"] = _trainer(
            nano, tmp_path, _with_logprobs(holder, shift), kl=0.0, sync=sync, prompts_per_step=1
        )
        _nudge(trainer)
        inputs, _ = _batch(trainer, prompts=1)
        trainer.model.zero_grad()
        trainer._compute_loss(trainer.model, inputs).backward()
        return {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}

    plain, weighed = gradient(SyncConfig()), gradient(SyncConfig(max_staleness=1))
    assert any(g.abs().max() > 0 for g in plain.values())
    for name, grad in plain.items():
        torch.testing.assert_close(weighed[name], grad * weight, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("updates", [1, 2])
def test_resume_is_bit_exact(nano: Path, tmp_path: Path, updates: int) -> None:
    # 6 issues, 2 a batch: the schedule goes through the issues more than once.
    whole = _trainer(nano, tmp_path / "whole", Made(), steps=8, updates_per_batch=updates, keep=9, kl=0.05)
    whole.train()
    again = _trainer(nano, tmp_path / "again", Made(), steps=8, updates_per_batch=updates, keep=9, kl=0.05)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    assert adapter_sha256(again.policy) == adapter_sha256(whole.policy)


def test_schedule_takes_every_issue_and_none_twice_a_step() -> None:
    settings = replace(GRPO, steps=10, prompts_per_step=2)
    ids = [f"i{n}" for n in range(5)]
    rows = schedule(ids, settings, seed=1)
    assert len(rows) == 20 and rows == schedule(list(reversed(ids)), settings, seed=1)
    assert all(rows[i] != rows[i + 1] for i in range(0, 20, 2))
    assert set(rows) == set(ids)


@pytest.mark.parametrize(("steps", "warm_up"), [(2, 0), (3, 0), (19, 0), (20, 1), (100, 5), (2000, 100)])
def test_a_run_too_short_for_a_warm_up_has_none(steps: int, warm_up: int, tmp_path: Path) -> None:
    """The first step of a warm-up has a learning rate of 0."""
    settings = replace(GRPO, steps=steps, warmup_share=0.05)
    made = grpo_arguments(settings, tmp_path, 0, workers=1, max_completion_tokens=10, use_cpu=True)
    assert made.warmup_steps == warm_up


def test_impossible_settings_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="do not fill one step"):
        schedule(["a"], GRPO, seed=0)
    odd: GRPOSettings = replace(GRPO, prompts_per_step=3, prompts_per_microbatch=1)
    with pytest.raises(ConfigError, match="prompts_per_step"):
        grpo_arguments(odd, tmp_path, 0, workers=2, max_completion_tokens=10, use_cpu=True)
