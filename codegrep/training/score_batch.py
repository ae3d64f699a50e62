"""What becomes of a batch of rollouts before any tensor is made: governance, rewards, dead groups, masks, turn weights.

Plain Python over records, so that it can be read and tested without a model. The trainer hands the masks to TRL as
`env_mask`, so that masked tokens are in no sum and no denominator of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

from codegrep.issues.issue import Issue
from codegrep.judges.verdicts import Judged, Verdicts, matters
from codegrep.metrics.scores import differ
from codegrep.rewards.governance import MaskDecision, Rules, govern
from codegrep.rewards.outcome import Outcome, RewardDesign, RewardParts, score
from codegrep.rewards.process_weights import ProcessScoring, Standing, process_weights
from codegrep.rewards.turn_credit import TurnScores
from codegrep.rollout.outcome import conduct_of, question_of, trajectory_of
from codegrep.rollout.record import Rollout

DeadGroups = Literal["keep", "drop"]
OutcomeOf = Callable[[Rollout, Issue], Outcome]


@dataclass(frozen=True)
class ScoredRollout:
    """One rollout after settlement.

    Attributes:
        rollout, outcome: what it is about.
        verdict: of governance.
        reward: what goes into the group; None is outside of it.
        alive: its group holds two different rewards, and it has one itself. What is not alive has advantage 0.
        mask: (C,) 1 on tokens in the loss: sampled, in a kept turn, not in a group that is dropped.
        scores: of its turns, None where they are not weighted; `standing` says why.
    """

    rollout: Rollout
    outcome: Outcome
    verdict: MaskDecision
    reward: RewardParts | None
    alive: bool
    mask: tuple[int, ...]
    scores: TurnScores | None
    standing: Standing

    def tokens(self) -> list[int]:
        """Tokens in the loss, of each turn."""
        return [sum(self.mask[turn.start : turn.end]) for turn in self.rollout.turns]

    def turn_weights(self, advantage: float, floor: float) -> list[float]:
        """Weight of each turn at this advantage; 1 without scores."""
        if self.scores is None:
            return [1.0] * len(self.rollout.turns)
        return process_weights(self.scores, self.tokens(), advantage, floor=floor)


@dataclass(frozen=True)
class BatchScorer:
    """How batches are settled.

    Attributes:
        reward: the design.
        rules: governance.
        process: turn scores.
        verdicts: who judges answers.
        dead_groups: groups without spread are kept (only KL acts on them) or dropped (no token of theirs is in the
            loss). The spread is exact, and taken over the rewards after governance.
    """

    reward: RewardDesign
    rules: Rules = field(default_factory=Rules)
    process: ProcessScoring = field(default_factory=ProcessScoring)
    dead_groups: DeadGroups = "keep"
    verdicts: Verdicts = field(default_factory=Verdicts)

    def judge(self, rollouts: Sequence[Rollout], issues: Mapping[str, Issue], outcome_of: OutcomeOf) -> Judged:
        """Ask the judge about every rollout whose reward a verdict changes; those that governance masks have no such
        reward.

        Raises:
            InfrastructureError: it failed too often.
        """
        if self.verdicts.judge is None:
            return Judged((None,) * len(rollouts))
        questions = []
        for rollout in rollouts:
            issue = issues[rollout.instance_id]
            outcome = outcome_of(rollout, issue)
            own = govern(conduct_of(rollout), self.rules).scored_as == "own"
            questions.append(question_of(outcome, rollout, issue) if own and matters(outcome, self.reward) else None)
        return self.verdicts.ask(questions)

    def settle(
        self,
        rollouts: Sequence[Rollout],
        issues: Mapping[str, Issue],
        outcome_of: OutcomeOf,
        group_size: int,
        judged: Judged | None = None,
    ) -> list[ScoredRollout]:
        """Every rollout of the batch, groups standing together. Deterministic: the same records and opinions, the same
        result.

        Args:
            judged: opinions on the rollouts, of `judge`; None is nobody's.
        """
        outcomes = [outcome_of(rollout, issues[rollout.instance_id]) for rollout in rollouts]
        failed = [False] * len(rollouts)
        for index, opinion in enumerate(judged.opinions if judged else ()):
            if opinion is not None:
                outcomes[index] = replace(outcomes[index], verdict=opinion.agrees)
                failed[index] = opinion.agrees is None
        verdicts = [
            govern(conduct_of(rollout, judge_failed=lost), self.rules)
            for rollout, lost in zip(rollouts, failed, strict=True)
        ]
        rewards = [
            verdict.settled(score(outcome, self.reward) if verdict.scored_as == "own" else None)
            for verdict, outcome in zip(verdicts, outcomes, strict=True)
        ]
        spread = with_spread(rewards, group_size)
        scored = self._scores(rollouts, issues, verdicts)
        settled = []
        for index, (rollout, verdict, reward) in enumerate(zip(rollouts, verdicts, rewards, strict=True)):
            alive = spread[index]
            dropped = self.dead_groups == "drop" and not alive
            scores, standing = scored[index]
            settled.append(
                ScoredRollout(
                    rollout,
                    outcomes[index],
                    verdict,
                    reward,
                    alive and reward is not None,
                    _mask(rollout, verdict, dropped),
                    scores,
                    standing,
                )
            )
        return settled

    def _scores(
        self, rollouts: Sequence[Rollout], issues: Mapping[str, Issue], verdicts: Sequence[MaskDecision]
    ) -> list[tuple[TurnScores | None, Standing]]:
        """Turn scores of each rollout. Masked ones are not judged."""
        if self.process.scorer is None:
            return [(None, "off")] * len(rollouts)

        def one(index: int) -> tuple[TurnScores | None, Standing]:
            if verdicts[index].handling != "normal":
                return None, "ineligible"
            statement = issues[rollouts[index].instance_id].problem_statement
            return self.process.scores(trajectory_of(rollouts[index], statement))

        places = range(len(rollouts))
        if self.process.concurrency == 1:
            return [one(index) for index in places]
        with ThreadPoolExecutor(self.process.concurrency, thread_name_prefix="turn-scores") as pool:
            return list(pool.map(one, places))


def with_spread(rewards: Sequence[RewardParts | None], group_size: int) -> list[bool]:
    """For each rollout, whether its whole group holds two different rewards, rounding aside."""
    alive: list[bool] = []
    for start in range(0, len(rewards), group_size):
        totals = [reward.total for reward in rewards[start : start + group_size] if reward is not None]
        alive += [differ(totals)] * min(group_size, len(rewards) - start)
    return alive


def _mask(rollout: Rollout, verdict: MaskDecision, dropped: bool) -> tuple[int, ...]:
    if dropped or verdict.handling == "full_mask":
        return (0,) * len(rollout.loss_mask)
    if verdict.handling == "normal":
        return tuple(rollout.loss_mask)
    kept = [0] * len(rollout.loss_mask)
    for turn, keep in zip(rollout.turns, verdict.kept_turns, strict=True):
        if keep:
            kept[turn.start : turn.end] = rollout.loss_mask[turn.start : turn.end]
    return tuple(kept)
