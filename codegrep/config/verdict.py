"""conf/verdict: a judge of answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class VerdictConfig:
    """conf/verdict: who is asked, while training, whether an answer means the same as the reference (SPEC 4.1).

    Attributes:
        judge: dotted name of a class (codegrep.judges.answers.AnswerJudge), or None: nobody is asked. params: its
            keyword arguments, checked by the class.
        max_failed_share: of the answers that a step asks about; with more of them without a verdict training stops, and
            goes on from its last checkpoint when it is started again. 1 never stops. governance.handling.judge_failed
            says what becomes of each.
    """

    name: str = "none"
    judge: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    max_failed_share: float = 0.5
