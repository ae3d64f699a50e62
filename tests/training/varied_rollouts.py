"""Made rollouts with every end that governance knows, and a trainer that hands out what each update did."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from codegrep.issues.issue import Issue
from codegrep.judges.answer_judging import AnswerJudging
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rewards.governance import Rules
from codegrep.rewards.signal import TrainingSignal
from codegrep.rewards.turn_credit import RolloutFacts
from codegrep.rewards.turn_scores import TurnScoring
from codegrep.rollout.record import CallRecord, Rollout, Turn
from codegrep.training.base_model import BaseModel
from codegrep.training.grpo import CodegrepGRPOTrainer
from codegrep.training.scoring import add_scoring
from tests.training.made_rollouts import GRPO, LORA, VOCABULARY, issues, lost, prompt_of
from tests.training.reference import Recipe

# What each place of a group ends with; a group has eight.
ENDS = ("answer", "answer", "max_tokens", "excessive_calls", "repetition", "lost", "max_turns", "answer")
MAX_CALLS = 5
GRAM = (3, 2)
HANDLING = {
    "max_tokens": "full_mask",
    "context_limit": "full_mask",
    "excessive_calls": "last_turn",
    "repetition": "last_turn",
}
EOS = 2


def by_calls(trajectory: RolloutFacts) -> list[float | None]:
    """A turn scorer for tests: by the number of calls; the answer has no score."""
    return [
        None if turn.submission is not None else (0.0, 0.2, 1.0, 0.7)[len(turn.calls) % 4] for turn in trajectory.turns
    ]


def varied(issue: Issue, place: int, step: int, ends: Sequence[str] = ENDS) -> Rollout:
    """One rollout of three turns; everything follows from issue, place and step."""
    draw = random.Random(f"{issue.instance_id} {place} {step}")
    end = ends[place % len(ends)]
    if end == "lost":
        return lost(issue)
    completion: list[int] = []
    mask: list[int] = []
    turns: list[Turn] = []
    for number in range(3):
        ids = [draw.randrange(5, VOCABULARY) for _ in range(draw.randrange(3, 9))]
        if end == "repetition" and number == 1:
            ids = [11, 12, 13] * 3
        if number == 2 and end != "max_tokens":
            ids.append(EOS)
        start = len(completion)
        completion += ids
        mask += [1] * len(ids)
        count = draw.randrange(0, 4) if number < 2 else 0
        if end == "excessive_calls" and number == 0:
            count = MAX_CALLS + 1
        calls = [CallRecord(n + 1, "grep", f'{{"pattern": "p{n}"}}', "ok", "", ["a.py"]) for n in range(count)]
        turns.append(Turn(start, len(completion), f"turn {number}", calls))
        if number < 2:
            told = draw.randrange(2, 12)
            completion += [draw.randrange(5, VOCABULARY) for _ in range(told)]
            mask += [0] * told
    answer = draw.choice([["a.py"], ["a.py", "b.py"], ["c.py"], ["a.py", "c.py"]])
    answered = end in ("answer", "excessive_calls", "repetition")
    cause = {"max_tokens": ExitCause.MAX_TOKENS, "max_turns": ExitCause.MAX_TURNS}.get(end, ExitCause.ANSWER)
    return Rollout(
        rollout_id=f"{issue.instance_id}-{place}-{step}",
        instance_id=issue.instance_id,
        repo=issue.repo,
        base_commit=issue.base_commit,
        source="policy",
        prompt_ids=prompt_of(issue),
        completion_ids=completion,
        loss_mask=mask,
        logprobs=[-6.3 + 0.16 * draw.random() if sampled else 0.0 for sampled in mask],
        turns=turns,
        answer=answer if answered else [],
        answered=answered,
        gold_files=list(issue.gold_files),
        exit_cause=cause,
    )


@dataclass
class Varied:
    """Collector; the draws depend on issue, place in the group and step, so that any division gives the same."""

    ends: Sequence[str] = ENDS
    same: bool = False  # the first issue's rollouts all get one answer: a group without spread

    def collect(self, wanted: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        return [self.one(issue, place, step) for issue in wanted for place in range(group_size)]

    def one(self, issue: Issue, place: int, step: int) -> Rollout:
        made = varied(issue, place, step, self.ends)
        if self.same and issue.instance_id == "o__r-0" and made.turns:
            calls = made.turns[0].calls or [CallRecord(1, "grep", "{}", "ok", "", ["a.py"])]
            turns = [replace(made.turns[0], calls=calls), *made.turns[1:]]
            made = replace(made, answer=["a.py"], answered=True, exit_cause=ExitCause.ANSWER, turns=turns)
        return made

    def close(self) -> None:
        pass


@dataclass
class Captured(TrainerCallback):
    """What each optimiser step was made of."""

    trainer: Any = None
    losses: list[float] = field(default_factory=list)
    steps: list[tuple[float, dict[str, Tensor], dict[str, Tensor]]] = field(default_factory=list)
    rollouts: list[list[Rollout]] = field(default_factory=list)

    def attach(self, trainer: CodegrepGRPOTrainer) -> None:
        self.trainer = trainer
        trainer.add_callback(self)
        original = trainer._compute_loss

        def keeping(*args: Any, **kwargs: Any) -> Tensor:
            loss = original(*args, **kwargs)
            self.losses.append(float(loss.detach()))
            return loss

        trainer._compute_loss = keeping  # type: ignore[method-assign]

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        parameters = {n: p for n, p in self.trainer.policy.named_parameters() if p.requires_grad}
        self.steps.append(
            (
                sum(self.losses),
                {n: p.grad.detach().clone() for n, p in parameters.items() if p.grad is not None},
                {n: p.detach().clone() for n, p in parameters.items()},
            )
        )
        self.losses.clear()
        self.rollouts.append([one.rollout for one in self.trainer._batch])


def rules_of(recipe: Recipe) -> Rules:
    return Rules(
        handling=recipe.handling,  # type: ignore[arg-type]
        masked_in_group=recipe.masked_in_group,
        infrastructure_in_group=recipe.lost_in_group,
        max_calls=recipe.max_calls,
        repetition_tokens=recipe.gram[0] or 15,
        repetition_times=recipe.gram[1],
    )


def trainer_for(
    recipe: Recipe,
    nano: Path,
    folder: Path,
    collector: Varied,
    *,
    fast: bool = True,
    workers: int = 1,
    judging: AnswerJudging | None = None,
    spare: int = 0,  # issues beyond those of the step
    **changes: Any,
) -> tuple[CodegrepGRPOTrainer, Captured]:
    """The project's trainer for a recipe, off its reference, with no gradient clipping."""
    model, tokenizer = BaseModel(str(nano), "float32").load()
    tokenizer.eos_token_id = EOS
    add_scoring(model)
    settings = replace(
        GRPO,
        **{
            "steps": 1,
            "prompts_per_step": 2,
            "prompts_per_microbatch": 1,
            "group_size": 8,
            "max_grad_norm": 1e9,
            "learning_rate": 2e-2,
            "kl": recipe.kl,
            "kl_estimator": recipe.kl_estimator,
            "loss_type": recipe.loss_type,
            "clip_low": recipe.clip[0],
            "clip_high": recipe.clip[1],
            "importance": "sequence" if recipe.sequence_ratio else "token",
            "mask_truncated": recipe.mask_truncated is not None,
            "denominator": "in_loss" if recipe.in_loss else "all",
            "dead_groups": "drop" if recipe.drop_dead else "keep",
            "sampling_correction": "sequence" if recipe.correction else "none",
            "sampling_low": recipe.correction[0] if recipe.correction else 0.0,
            "sampling_high": recipe.correction[1] if recipe.correction else None,
            **changes,
        },
    )
    trainer = CodegrepGRPOTrainer(
        model=model,
        tokenizer=tokenizer,
        issues=issues(2 * workers + spare),
        collect=collector.collect,
        signal=TrainingSignal(
            recipe.reward, recipe.factor, "loo" if recipe.loo else "mean", recipe.scale, rules_of(recipe)
        ),
        turn_scoring=TurnScoring(recipe.scorer, recipe.only_answered),
        judging=judging or AnswerJudging(),
        lora=LORA,
        settings=settings,
        max_completion_tokens=recipe.longest,
        output_dir=folder,
        seed=0,
        workers=workers,
    )
    trainer.fast_scoring = fast
    generator = torch.Generator().manual_seed(5)
    for name, parameter in trainer.model.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    captured = Captured()
    captured.attach(trainer)
    return trainer, captured
