"""Rollout records with random tokens, made from a seed, and a collector that hands them out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import OmegaConf

from codegrep.config import TrainConfig
from codegrep.config.reading import checked
from codegrep.issues.issue import Issue
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rollout.record import CallRecord, Rollout, Turn

VOCABULARY = 300
_CONF = Path(__file__).parents[2] / "conf"
_SHIPPED = checked(
    TrainConfig,
    OmegaConf.to_container(
        OmegaConf.merge(
            OmegaConf.load(_CONF / "train" / "default.yaml"),
            {"grpo": OmegaConf.load(_CONF / "loss" / "codegrep.yaml")},
        )
    ),
)
LORA = replace(_SHIPPED.lora, r=4, alpha=8)
WARM_START = replace(
    _SHIPPED.warm_start,
    epochs=2,
    learning_rate=1e-3,
    warmup_share=0.1,
    tokens_per_step=300,
    max_tokens=400,
    save_every=2,
)
GUARD_RAILS = _SHIPPED.guard_rails
GRPO = replace(
    _SHIPPED.grpo,
    steps=4,
    prompts_per_step=2,
    group_size=4,
    prompts_per_microbatch=1,
    learning_rate=1e-2,
    warmup_share=0.0,
    kl=0.02,
    loss_type="grpo",
    save_every=1,
)


def issues(count: int) -> list[Issue]:
    return [Issue(f"o__r-{i}", "o/r", "0" * 40, f"statement {i}", gold_files=("a.py", "b.py")) for i in range(count)]


def prompt_of(issue: Issue) -> list[int]:
    draw = random.Random(issue.instance_id)
    return [draw.randrange(5, VOCABULARY) for _ in range(draw.randrange(6, 30))]


def rollout(issue: Issue, seed: object, turns: int = 2) -> Rollout:
    """Turns of sampled tokens with tool text between them; calls and answer follow from the seed."""
    draw = random.Random(f"{issue.instance_id} {seed}")
    completion: list[int] = []
    mask: list[int] = []
    made: list[Turn] = []
    for turn in range(turns):
        sampled, told = draw.randrange(3, 9), draw.randrange(2, 12)
        start = len(completion)
        completion += [draw.randrange(5, VOCABULARY) for _ in range(sampled)]
        mask += [1] * sampled
        last = turn == turns - 1
        calls = (
            []
            if last
            else [CallRecord(n + 1, "grep", f'{{"pattern": "p{n}"}}', "ok", "") for n in range(draw.randrange(0, 6))]
        )
        made.append(Turn(start, len(completion), "", calls, weight=draw.choice([1.0, 0.6, 0.3, 0.05])))
        made[-1].seconds_generation, made[-1].seconds_tools = 0.2, 0.1
        if not last:
            completion += [draw.randrange(5, VOCABULARY) for _ in range(told)]
            mask += [0] * told
    answer = draw.choice([[], ["a.py"], ["a.py", "b.py"], ["c.py"], ["a.py", "c.py"]])
    return Rollout(
        rollout_id=f"{issue.instance_id}-{seed}",
        instance_id=issue.instance_id,
        repo=issue.repo,
        base_commit=issue.base_commit,
        source="policy",
        prompt_ids=prompt_of(issue),
        completion_ids=completion,
        loss_mask=mask,
        logprobs=[],
        turns=made,
        answer=answer,
        answered=bool(answer),
        gold_files=list(issue.gold_files),
        exit_cause=ExitCause.ANSWER,
    )


def lost(issue: Issue) -> Rollout:
    """What remains of a rollout whose worker died before the first token."""
    whole = rollout(issue, "lost")
    return replace(
        whole,
        prompt_ids=[],
        completion_ids=[],
        loss_mask=[],
        turns=[],
        answer=[],
        answered=False,
        exit_cause=ExitCause.INFRASTRUCTURE,
        error="worker lost",
    )


class Made:
    """Collector of made rollouts; the draws depend on step and place alone. `lose`: (step, place) that are lost."""

    def __init__(self, lose: Sequence[tuple[int, int]] = ()) -> None:
        self.lose = set(lose)
        self.steps: list[int] = []

    def collect(self, wanted: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        self.steps.append(step)
        places = [issue for issue in wanted for _ in range(group_size)]
        return [
            lost(issue) if (step, place) in self.lose else rollout(issue, f"{step}-{place}")
            for place, issue in enumerate(places)
        ]

    def metrics(self) -> dict[str, float]:
        return {"engine/weights_version": float(self.steps[-1])}

    def close(self) -> None:
        pass
