"""Scores of a batch of rollouts before any tensor is made: governance, rewards, dead groups, masks, turn scores.

Plain Python over records, so that it can be read and tested without a model. The trainer hands the masks to TRL as
`env_mask`, so that masked tokens are in no sum and no denominator of the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from codegrep.issues.issue import Issue
from codegrep.judges.answer_judging import AnswerJudging, JudgedBatch, needs_judgement
from codegrep.rewards.governance import MaskDecision, govern
from codegrep.rewards.outcome import Outcome
from codegrep.rewards.signal import RolloutScore, TrainingSignal, batch_advantages, score_rollout
from codegrep.rewards.turn_credit import TurnScores
from codegrep.rewards.turn_scores import TurnScoreStatus, TurnScoring, weigh_turns
from codegrep.rollout.outcome import conduct_of, outcome_for, question_of, trajectory_of
from codegrep.rollout.record import Rollout

DeadGroups = Literal["keep", "drop"]


@dataclass(frozen=True)
class BatchScoring:
    """How batches are scored.

    Attributes:
        signal: governance, reward design, normalisation and factor.
        turn_scoring: scores of turns.
        dead_groups: groups without two different rewards are kept (only KL acts on them) or dropped (no token of
            theirs is in the loss).
        judging: who judges answers.
    """

    signal: TrainingSignal
    turn_scoring: TurnScoring = field(default_factory=TurnScoring)
    dead_groups: DeadGroups = "keep"
    judging: AnswerJudging = field(default_factory=AnswerJudging)


@dataclass(frozen=True)
class ScoredRollout:
    """One rollout and what it is worth in training.

    Attributes:
        rollout: the record.
        outcome: what the reward design sees of it.
        score: governance's decision, reward and factor.
        alive: it has a reward, and its group holds two different ones. Otherwise its advantage is 0.
        mask: (C,) 1 on tokens in the loss: sampled, in a kept turn, not in a dropped group.
        turn_scores: None where turns are not weighted; `turn_status` says why.
    """

    rollout: Rollout
    outcome: Outcome
    score: RolloutScore
    alive: bool
    mask: tuple[int, ...]
    turn_scores: TurnScores | None = None
    turn_status: TurnScoreStatus = "off"

    def tokens(self) -> list[int]:
        """Return the number of tokens in the loss of each turn."""
        return [sum(self.mask[turn.start : turn.end]) for turn in self.rollout.turns]

    def turn_weights(self, advantage: float, floor: float) -> list[float]:
        """Return the weight of each turn at this advantage; 1 without scores."""
        if self.turn_scores is None:
            return [1.0] * len(self.rollout.turns)
        return weigh_turns(self.turn_scores, self.tokens(), advantage, floor=floor)


def judge_answers(rollouts: Sequence[Rollout], issues: Mapping[str, Issue], scoring: BatchScoring) -> JudgedBatch:
    """Ask the judge about every rollout whose reward depends on it; those that governance masks have no such reward.

    Raises:
        InfrastructureError: the judge failed too often.
    """
    if scoring.judging.judge is None:
        return JudgedBatch((None,) * len(rollouts))
    questions = []
    for rollout in rollouts:
        issue = issues[rollout.instance_id]
        outcome = outcome_for(rollout, issue)
        scored = govern(conduct_of(rollout), scoring.signal.rules).scored_as == "own"
        depends = scored and needs_judgement(outcome, scoring.signal.reward)
        questions.append(question_of(outcome, rollout, issue) if depends else None)
    return scoring.judging.ask(questions)


def score_batch(
    rollouts: Sequence[Rollout],
    issues: Mapping[str, Issue],
    group_size: int,
    scoring: BatchScoring,
    judged: JudgedBatch | None = None,
) -> list[ScoredRollout]:
    """Score whole groups of rollouts, one group after another.

    Args:
        rollouts: in the order of their groups.
        issues: by instance id.
        group_size: rollouts of one issue.
        scoring: how.
        judged: judgements on the rollouts, of `judge_answers`; None has none.
    """
    outcomes, scores = [], []
    for rollout, judgement in zip(rollouts, judged.judgements if judged else [None] * len(rollouts), strict=True):
        outcome = outcome_for(rollout, issues[rollout.instance_id])
        if judgement is not None:
            outcome = replace(outcome, judgement=judgement.agrees)
        failed = judgement is not None and judgement.agrees is None
        outcomes.append(outcome)
        scores.append(score_rollout(outcome, conduct_of(rollout, judge_failed=failed), scoring.signal))
    alive = batch_advantages(scores, np.arange(len(rollouts)) // group_size, scoring.signal).alive.tolist()
    turns = _score_turns(rollouts, issues, scores, scoring.turn_scoring)
    return [
        ScoredRollout(
            rollout,
            outcome,
            score,
            group_alive and score.reward is not None,
            _mask(rollout, score.decision, dropped=scoring.dead_groups == "drop" and not group_alive),
            *turn_scores,
        )
        for rollout, outcome, score, group_alive, turn_scores in zip(
            rollouts, outcomes, scores, alive, turns, strict=True
        )
    ]


def _score_turns(
    rollouts: Sequence[Rollout], issues: Mapping[str, Issue], scores: Sequence[RolloutScore], scoring: TurnScoring
) -> list[tuple[TurnScores | None, TurnScoreStatus]]:
    """Score the turns of every rollout that governance does not mask."""

    def one(rollout: Rollout, score: RolloutScore) -> tuple[TurnScores | None, TurnScoreStatus]:
        if scoring.scorer is not None and score.decision.handling != "normal":
            return None, "ineligible"
        return scoring.scores(trajectory_of(rollout, issues[rollout.instance_id].problem_statement))

    with ThreadPoolExecutor(scoring.concurrency, thread_name_prefix="turn-scores") as pool:
        return list(pool.map(one, rollouts, scores))


def _mask(rollout: Rollout, decision: MaskDecision, dropped: bool) -> tuple[int, ...]:
    mask = [0] * len(rollout.loss_mask)
    if dropped:
        return tuple(mask)
    if decision.handling == "normal":
        return tuple(rollout.loss_mask)
    for turn, keep in zip(rollout.turns, decision.kept_turns, strict=True):
        if keep:
            mask[turn.start : turn.end] = rollout.loss_mask[turn.start : turn.end]
    return tuple(mask)
