"""GRPO (CodeGrep, arXiv 2608.05886, eq 6 to 8): TRL's trainer with rollouts, rewards and advantages of this project."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOConfig

from codegrep.config import GRPOSettings, LoraSettings, SyncConfig
from codegrep.engines.cpu.lora_linear import use_fused_lora
from codegrep.errors import ConfigError, InfrastructureError
from codegrep.issues.issue import Issue
from codegrep.judges.answer_judging import AnswerJudging
from codegrep.rewards.signal import TrainingSignal, batch_advantages
from codegrep.rewards.turn_scores import TurnScoring
from codegrep.rollout.record import Rollout
from codegrep.tracking.names import from_trl
from codegrep.training.convergence import MEMORY
from codegrep.training.grpo_setup import grpo_arguments, schedule, training_rows
from codegrep.training.lora import PolicyModel, lora_config
from codegrep.training.loss_terms import Denominator, SequenceCorrection, aggregate, kl_k2, kl_k3
from codegrep.training.refill import Refill
from codegrep.training.score_batch import BatchScoring, ScoredRollout, judge_answers, score_batch
from codegrep.training.scoring import add_scoring
from codegrep.training.signal_metrics import judge_sums, signal_sums
from codegrep.training.step_metrics import Sums, add_up, kept, rollout_sums
from codegrep.training.token_metrics import Clip, LogprobGap, token_sums
from codegrep.training.trl_hooks import HookedGRPOTrainer

# (issues, group size, optimiser step) -> group_size rollouts of the first issue, then of the second, and so on.
Collect = Callable[[Sequence[Issue], int, int], list[Rollout]]

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # silences a warning about rollout_func at every start


class CodegrepGRPOTrainer(HookedGRPOTrainer):
    """GRPO with tool text masked, advantages scaled after normalisation, and lost rollouts left out.

    Rewards and advantages are those of `codegrep.rewards.signal`; what TRL makes of the rewards is not used. With turn
    scores the advantage is A_i · a_i(t) at token t (arXiv 2605.07276). Governance decides which rollouts are scored and
    which of their tokens are in the loss and in KL; by default a rollout with exit cause "infrastructure" has no
    reward, advantage 0, and no token in the loss or in KL.

    KL is measured against `model` as it is at the start: the warm-started model with its adapter merged. With LoRA the
    reference is the model with the adapter off; where all weights are trained, TRL loads a second copy if KL is scored.

    Engines give raw log-probabilities, before temperature, top-p and top-k. `policy/logprob_gap` and `policy/ess` say
    how far engine and trainer are apart; beyond the bounds of `sync` training stops. If `sync` lets the engine fall
    behind, the policy term of each token is multiplied by the truncated ratio of trainer to engine.

    Args:
        model: after `scoring.add_scoring`; frozen, for an adapter to be attached here, or trainable.
        tokenizer: for its end-of-turn token.
        issues: all training issues.
        collect: samples rollouts of this worker's issues.
        signal: from outcomes to advantages.
        turn_scoring: scores of turns.
        judging: the judge of answers.
        lora: train.lora, or None to train all weights.
        settings: train.grpo.
        max_completion_tokens: for loss_type dr_grpo.
        output_dir: for checkpoints.
        seed: of the schedule and of the adapter's initial weights.
        workers: Ray Train workers; each takes whole groups.
        use_cpu: train on the CPU.
        gradient_checkpointing: train.gradient_checkpointing.
        sync: engine.sync.
        collected: returns the metrics of the last `collect`.

    Raises:
        ConfigError: prompts_per_step cannot be divided among workers and microbatches.
        DataError: fewer issues than prompts_per_step.
    """

    def __init__(
        self,
        *,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        issues: Sequence[Issue],
        collect: Collect,
        signal: TrainingSignal,
        turn_scoring: TurnScoring = TurnScoring(),  # noqa: B008  # frozen
        judging: AnswerJudging = AnswerJudging(),  # noqa: B008  # frozen
        lora: LoraSettings | None,
        settings: GRPOSettings,
        max_completion_tokens: int,
        output_dir: Path,
        seed: int,
        workers: int = 1,
        use_cpu: bool = True,
        gradient_checkpointing: bool = False,
        sync: SyncConfig | None = None,
        collected: Callable[[], dict[str, float]] = dict,
        **kwargs: Any,
    ) -> None:
        self._issues = {issue.instance_id: issue for issue in issues}
        self._collect = collect
        self._collected = collected
        self._sync = sync or SyncConfig()
        self._group_size = settings.group_size
        self._end = cast(int, tokenizer.eos_token_id)
        self._scoring = BatchScoring(signal, turn_scoring, settings.dead_groups, judging)
        self._batch: list[ScoredRollout] = []  # this worker's share of it
        self._phases: defaultdict[str, float] = defaultdict(float)
        self._loss = settings
        self._max_completion_tokens = max_completion_tokens
        self._sums: list[Sums] = []
        self._engine_state: dict[str, float] = {}
        self.own_metrics: dict[str, float] = {}
        arguments = grpo_arguments(
            settings,
            output_dir,
            seed,
            workers=workers,
            max_completion_tokens=max_completion_tokens,
            use_cpu=use_cpu,
            gradient_checkpointing=gradient_checkpointing,
        )
        rows = schedule([issue.instance_id for issue in issues], settings, seed)
        self._refills = Refill(
            ids=list(self._issues),
            batches=rows,
            size=settings.prompts_per_step,
            rounds=settings.refill_rounds if settings.dead_groups == "drop" else 0,
            seed=seed,
            gather=lambda number: gather_object([number]),
            rank=lambda: self.accelerator.process_index,
        )
        super().__init__(
            model=model,
            reward_funcs=[self.reward],
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": rows}),
            processing_class=tokenizer,
            peft_config=None if lora is None else lora_config(lora),
            rollout_func=self._roll_out,
            fast_scoring=use_cpu,
            importance_cap=self._sync.importance_cap if self._sync.max_staleness else 0.0,
            **kwargs,
        )
        if self.ref_model is not None and use_cpu:
            add_scoring(self.ref_model)
        use_fused_lora(self.policy)

    @property
    def policy(self) -> PolicyModel:
        """The model in training, without the wrappers of distributed training."""
        return cast(PolicyModel, self.accelerator.unwrap_model(self.model))

    def _roll_out(self, prompts: list[str], _trainer: Any) -> dict[str, list[Any]]:
        """Roll out as TRL's rollout_func: prompts are instance ids, each num_generations times."""
        size = self._group_size
        ids = prompts[::size]
        if prompts != [instance_id for instance_id in ids for _ in range(size)]:
            raise InfrastructureError(
                "TRL no longer repeats each prompt num_generations times", "Use the pinned version of trl"
            )
        self._phases.clear()
        self._batch = self._collect_and_score(ids)
        first = list(self._batch)
        drawn = [*first, *self._refill(len(ids))]
        self._sums += [{name: (seconds, 1.0) for name, seconds in self._phases.items()}, rollout_sums(drawn, size)]
        if self._refills.rounds:
            self._sums.append(kept(rollout_sums(self._batch, size)))
        return training_rows([one.rollout for one in self._batch], [one.mask for one in self._batch], self._end)

    def _collect_and_score(self, ids: Sequence[str]) -> list[ScoredRollout]:
        """Collect and score groups of these issues; masks have to be known before TRL counts tokens."""
        size, start = self._group_size, time.perf_counter()
        rollouts = self._collect([self._issues[instance_id] for instance_id in ids], size, self.state.global_step)
        self._check(rollouts, [instance_id for instance_id in ids for _ in range(size)])
        self._take_metrics(self._collected())
        collected = time.perf_counter()
        judged = judge_answers(rollouts, self._issues, self._scoring)
        scored = score_batch(rollouts, self._issues, size, self._scoring, judged)
        for name, seconds in _phase_seconds(rollouts, collected - start, time.perf_counter() - collected).items():
            self._phases[name] += seconds
        if self._scoring.judging.judge is not None:
            self._phases["judge/seconds"] += judged.seconds
            self._sums.append(judge_sums(judged))
        return scored

    def _take_metrics(self, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one `collect`: errors and seconds add up over a step."""
        self._sums.append({name: (value, None) for name, value in metrics.items() if name.startswith("errors/")})
        if "engine/sync_seconds" in metrics:
            self._phases["engine/sync_seconds"] += metrics["engine/sync_seconds"]
        self._engine_state = {
            name: value
            for name, value in metrics.items()
            if name != "engine/sync_seconds" and not name.startswith("errors/")
        }

    def _refill(self, groups: int) -> list[ScoredRollout]:
        """Replace dropped groups by groups of other issues, in train.grpo.refill_rounds; return all groups sampled."""
        size, filled, drawn = self._group_size, 0, list[ScoredRollout]()

        def dead() -> list[int]:
            starts = range(0, groups * size, size)
            return [start for start in starts if not any(one.alive for one in self._batch[start : start + size])]

        batch = self.state.global_step // self._loss.updates_per_batch
        for ids in self._refills.draw(batch, lambda: len(dead())):
            places, fresh = dead(), self._collect_and_score(ids)
            drawn += fresh
            for number, place in enumerate(places[: len(ids)]):
                group = fresh[number * size : (number + 1) * size]
                filled += any(one.alive for one in group)
                self._batch[place : place + size] = group
        self._sums.append(
            {"group/drawn": (float(groups + len(drawn) // size), None), "group/refilled": (float(filled), None)}
        )
        return drawn

    def _check(self, rollouts: Sequence[Rollout], prompts: Sequence[str]) -> None:
        if [rollout.instance_id for rollout in rollouts] != list(prompts):
            raise InfrastructureError("collected rollouts are not in the order of the issues asked for")
        for rollout in rollouts:
            lengths = {len(rollout.completion_ids), len(rollout.loss_mask)}
            if not rollout.lost and (len(lengths) > 1 or not rollout.prompt_ids or lengths == {0}):
                raise InfrastructureError(
                    f"rollout {rollout.rollout_id} has no tokens, or a loss mask of another length"
                )

    def reward(self, *_args: Any, **_kwargs: Any) -> list[float | None]:
        """Return each rollout's reward as TRL's reward function; `shape_advantages` replaces what TRL makes of it."""
        return [None if one.score.reward is None else one.score.reward.total for one in self._batch]

    def shape_advantages(self, advantages: Tensor, width: int) -> Tensor:
        """Replace TRL's advantages by those of the signal, over the rewards of all workers, times weights of turns."""
        batch, floor = self._batch, self._scoring.turn_scoring.floor
        scores = gather_object([one.score for one in batch])  # each worker holds whole groups, of equal number
        every = batch_advantages(scores, np.arange(len(scores)) // self._group_size, self._scoring.signal).advantages
        first = self.accelerator.process_index * len(batch)
        values = every[first : first + len(batch)]
        self._sums.append(signal_sums(batch, values.tolist(), floor))
        shaped = advantages.new_tensor(values)
        if self._scoring.turn_scoring.scorer is None:
            return shaped
        weights = shaped.new_ones(len(batch), width)
        for row, (one, advantage) in enumerate(zip(batch, values.tolist(), strict=True)):
            for turn, weight in zip(one.rollout.turns, one.turn_weights(advantage, floor), strict=True):
                weights[row, turn.start : turn.end] = weight
        return shaped[:, None] * weights

    def batch_scale(self, output: dict[str, Any]) -> Tensor | None:
        """Return all rollouts over rollouts in the loss, of all workers, for denominator "in_loss"."""
        if self._loss.denominator != "in_loss":
            return None
        mask = output["completion_mask"] * output["tool_mask"]
        counts = torch.stack([mask.any(1).sum(), mask.new_tensor(len(mask))]).float()
        kept, every = cast(Tensor, self.accelerator.reduce(counts, reduction="sum"))
        return cast(Tensor, every / kept.clamp(min=1.0))

    def weigh_rollouts(self, logps: Tensor, inputs: dict[str, Any], mask: Tensor) -> Tensor | None:
        """Return the factors of the sequence correction, if it is on."""
        if self._loss.sampling_correction == "none":
            return None
        sampled = inputs.get("sampling_per_token_logps")
        if sampled is None:
            raise ConfigError(
                "train.grpo.sampling_correction needs log-probabilities at sampling, which the engine does not give",
                "Set it to none, or use an engine that gives them",
            )
        correction = SequenceCorrection(self._loss.sampling_low, self._loss.sampling_high)
        weights, ratio = correction.weights(logps, sampled, mask)
        there = mask.any(1)
        count = float(there.sum())
        self._sums.append(
            {
                "policy/sequence_ratio": (float(ratio[there].sum()), count),
                "policy/sequence_masked": (float((weights[there] == 0).sum()), count),
            }
        )
        return weights

    def extra_loss(self, logps: Tensor, inputs: dict[str, Any], mask: Tensor) -> Tensor | None:
        """Replace TRL's k3 by k2, if kl_estimator asks for it."""
        if self._loss.kl_estimator != "k2" or not self.beta:
            return None
        reference = inputs["ref_per_token_logps"]
        arguments = cast(GRPOConfig, self.args)
        accumulation = float(self.current_gradient_accumulation_steps)
        share = accumulation / (arguments.steps_per_generation or 1) / self.accelerator.num_processes
        by = Denominator(accumulation, self._max_completion_tokens, inputs["num_items_in_batch"] * share)
        difference = kl_k2(logps, reference) - kl_k3(logps, reference)
        return self.beta * aggregate(difference, mask, self.loss_type, by)

    def observe(self, logps: Tensor, entropy: Tensor, inputs: dict[str, Any], mask: Tensor) -> None:
        """Add the token sums of a microbatch to the step's metrics."""
        clip = Clip(self.epsilon_low, self.epsilon_high, self.importance_sampling_level)
        old, reference = inputs.get("old_per_token_logps"), inputs.get("ref_per_token_logps")
        self._sums.append(
            token_sums(logps, entropy, mask, inputs["advantages"], old=old, reference=reference, clip=clip)
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the step; metrics added up over the workers are in `own_metrics`."""
        if "loss" in logs:
            self.own_metrics = self._step_metrics()
            check_gap(self.own_metrics, self._sync)
            logs.update({name: self.own_metrics[name] for name in MEMORY if name in self.own_metrics})
        super().log(logs, start_time)

    def _step_metrics(self) -> dict[str, float]:
        seconds, sums = self.close_step(), self._sums
        before = sum(s[name][0] for s in sums for name in ("seconds/rollouts", "seconds/scoring") if name in s)
        trained = [one.rollout for one in self._batch if not one.rollout.lost]
        sums.append(
            {
                "seconds/reference": (max(0.0, seconds["score"] - before), 1.0),
                "seconds/update": (seconds["step"] - seconds["score"], 1.0),
                "optim/tokens": (float(sum(len(r.prompt_ids) + len(r.completion_ids) for r in trained)), None),
                **{name: (value, 1.0) for name, value in self._engine_state.items()},
            }
        )
        self._sums = []
        gathered = gather_object([(sums, self.logprob_gap)])
        metrics = add_up(one for of_worker, _ in gathered for one in of_worker)
        batches = math.ceil(self.state.global_step / self._loss.updates_per_batch)
        metrics["optim/epoch"] = batches * self._loss.prompts_per_step / len(self._issues)
        gaps = [gap for _, gap in gathered if gap is not None]
        return metrics | (LogprobGap.pooled(gaps).metrics() if gaps else {})

    def grpo_names(self, logs: Any) -> dict[str, float]:
        """Return a log of TRL under the project's names, with this project's metrics of the step."""
        own = self.own_metrics if "loss" in logs else {}
        # TRL's epoch is the share of the schedule that is done.
        return {**from_trl({key: value for key, value in logs.items() if key != "epoch"}), **own}


def check_gap(metrics: Mapping[str, float], sync: SyncConfig) -> None:
    """Check that on-policy engine and trainer give the same tokens nearly the same probability.

    Args:
        metrics: of the step.
        sync: has the bounds.

    Raises:
        InfrastructureError: they do not: the engine has other weights, or computes something else.
    """
    gap, ess = metrics.get("policy/logprob_gap"), metrics.get("policy/ess")
    if gap is None or ess is None or metrics.get("engine/staleness"):
        return
    for wrong, what, key in (
        (sync.max_logprob_gap and not gap <= sync.max_logprob_gap, f"{gap:.3g} nats a token apart", "max_logprob_gap"),
        (sync.min_ess and not ess >= sync.min_ess, f"at an effective sample size of {ess:.1%}", "min_ess"),
    ):
        if wrong:
            raise InfrastructureError(
                f"engine and trainer are {what} in this step (engine.sync.{key}={getattr(sync, key):g})",
                "The engine has other weights or another dtype; training on its rollouts would be wrong",
            )


def _phase_seconds(rollouts: Sequence[Rollout], wall: float, scoring: float) -> dict[str, float]:
    """Divide the wall time of collecting in proportion to the turns' clocks, whose sum exceeds it."""
    generation = sum(turn.seconds_generation for rollout in rollouts for turn in rollout.turns)
    tools = sum(turn.seconds_tools for rollout in rollouts for turn in rollout.turns)
    share = tools / (generation + tools) if generation + tools else 0.0
    return {
        "seconds/rollouts": wall,
        "seconds/generation": wall * (1 - share),
        "seconds/tools": wall * share,
        "seconds/scoring": scoring,
    }
