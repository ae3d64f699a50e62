"""Verdicts of a judge on a batch of answers: who is asked about which rollout, and when that has failed too often."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegrep.errors import InfrastructureError
from codegrep.judges.answers import AnswerJudge, AnswerQuestion, Opinion
from codegrep.metrics.scores import differ
from codegrep.rewards.outcome import Outcome, RewardDesign


@dataclass(frozen=True)
class Judged:
    """What came of asking about one batch.

    Attributes:
        opinions: one for each rollout; None where it was not asked about.
        seconds: wall time. requests, tokens: sent requests, and tokens of questions and answers as the server counts.
    """

    opinions: tuple[Opinion | None, ...]
    seconds: float = 0.0
    requests: int = 0
    tokens: int = 0

    @property
    def asked(self) -> list[Opinion]:
        """Opinions on the rollouts that were asked about."""
        return [opinion for opinion in self.opinions if opinion is not None]

    @property
    def failed(self) -> list[Opinion]:
        """Those of them without a verdict."""
        return [opinion for opinion in self.asked if opinion.agrees is None]


@dataclass(frozen=True)
class Verdicts:
    """How answers are judged in training.

    Attributes:
        judge: None asks nobody; a design that wants a verdict then gets none.
        max_failed_share: of the rollouts of a batch that are asked about; with more failures training stops, and goes
            on from its last checkpoint when it is started again. 1 never stops. What becomes of a single failed one is
            governance's (`judge_failed`).
    """

    judge: AnswerJudge | None = None
    max_failed_share: float = 0.5

    def check(self) -> None:
        """Ask nothing yet, but find what would keep every question from being asked.

        Raises:
            ConfigError: for instance the judge's key is not set on this machine.
        """
        check = getattr(self.judge, "check", None)  # a judge need not have it
        if check is not None:
            check()

    def ask(self, questions: Sequence[AnswerQuestion | None]) -> Judged:
        """Opinions on the questions that are not None.

        Raises:
            InfrastructureError: too many of them have none.
        """
        wanted = [question for question in questions if question is not None]
        if self.judge is None or not wanted:
            return Judged((None,) * len(questions))
        usage, began = replace(self.judge.usage), time.perf_counter()
        found = list(self.judge.judge(wanted))
        seconds, now = time.perf_counter() - began, self.judge.usage
        if len(found) != len(wanted):
            raise InfrastructureError(f"the judge gave {len(found)} opinions on {len(wanted)} answers")
        left = iter(found)
        judged = Judged(
            tuple(None if question is None else next(left) for question in questions),
            seconds,
            now.requests - usage.requests,
            now.prompt_tokens + now.completion_tokens - usage.prompt_tokens - usage.completion_tokens,
        )
        if len(judged.failed) > self.max_failed_share * len(wanted):
            raise InfrastructureError(
                f"the judge gave no verdict on {len(judged.failed)} of {len(wanted)} answers "
                f"(first: {judged.failed[0].error}); answer_judge.max_failed_share is {self.max_failed_share:g}",
                "Look after the endpoint of answer_judge.params; the same command continues from the last checkpoint",
            )
        return judged


def matters(outcome: Outcome, design: RewardDesign) -> bool:
    """Whether a verdict changes this rollout's reward. It is found by trying, so it is true of a user's own design too;
    with `tiered`, the judge is asked about what has passed the check alone, as in the paper.
    """
    agreed, refused = design(replace(outcome, verdict=True)), design(replace(outcome, verdict=False))
    return differ((agreed.total, refused.total))
