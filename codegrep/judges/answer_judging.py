"""Judging a batch of answers: whose reward depends on the judge, and when the judge has failed too often."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegrep.errors import InfrastructureError
from codegrep.judges.answers import AnswerJudge, AnswerQuestion, Judgement
from codegrep.metrics.scores import differ
from codegrep.rewards.outcome import Outcome, RewardDesign


@dataclass(frozen=True)
class JudgedBatch:
    """The judgements on one batch, and what they took.

    Attributes:
        judgements: one for each rollout; None where the judge was not asked.
        seconds: wall time.
        requests: sent requests, retries included.
        tokens: of questions and answers, as the server counts them.
    """

    judgements: tuple[Judgement | None, ...]
    seconds: float = 0.0
    requests: int = 0
    tokens: int = 0

    @property
    def asked(self) -> list[Judgement]:
        """Judgements on the rollouts that the judge was asked about."""
        return [judgement for judgement in self.judgements if judgement is not None]

    @property
    def failed(self) -> list[Judgement]:
        """Those of `asked` without a result."""
        return [judgement for judgement in self.asked if judgement.agrees is None]


@dataclass(frozen=True)
class AnswerJudging:
    """How answers are judged in training.

    Attributes:
        judge: None asks nobody; a design that needs a judgement then gets none.
        max_failed_share: of the rollouts of a batch that the judge is asked about. With more failures training stops,
            and continues from its last checkpoint when started again; 1 never stops. Governance decides about a single
            failure (`judge_failed`).
    """

    judge: AnswerJudge | None = None
    max_failed_share: float = 0.5

    def check(self) -> None:
        """Find what would keep every question from being asked, without asking one.

        Raises:
            ConfigError: for instance the judge's key is not set on this machine.
        """
        check = getattr(self.judge, "check", None)  # a judge need not have it
        if check is not None:
            check()

    def ask(self, questions: Sequence[AnswerQuestion | None]) -> JudgedBatch:
        """Ask the questions that are not None.

        Raises:
            InfrastructureError: too many of them got no judgement.
        """
        asked = [question for question in questions if question is not None]
        if self.judge is None or not asked:
            return JudgedBatch((None,) * len(questions))
        before, start = replace(self.judge.usage), time.perf_counter()
        judgements = list(self.judge.judge(asked))
        seconds, after = time.perf_counter() - start, self.judge.usage
        if len(judgements) != len(asked):
            raise InfrastructureError(f"the judge gave {len(judgements)} judgements on {len(asked)} answers")
        remaining = iter(judgements)
        batch = JudgedBatch(
            tuple(None if question is None else next(remaining) for question in questions),
            seconds,
            after.requests - before.requests,
            after.prompt_tokens + after.completion_tokens - before.prompt_tokens - before.completion_tokens,
        )
        if len(batch.failed) > self.max_failed_share * len(asked):
            raise InfrastructureError(
                f"the judge failed on {len(batch.failed)} of {len(asked)} answers (first: {batch.failed[0].error}); "
                f"answer_judge.max_failed_share is {self.max_failed_share:g}",
                "Check the endpoint of answer_judge.params; the same command continues from the last checkpoint",
            )
        return batch


def needs_judgement(outcome: Outcome, design: RewardDesign) -> bool:
    """Return whether a judgement changes this rollout's reward, found by trying both.

    It is true of a user's own design too. With `tiered` only answers that pass the check are judged, as in the paper.
    """
    agreed, refused = design(replace(outcome, judgement=True)), design(replace(outcome, judgement=False))
    return differ((agreed.total, refused.total))
