"""conf/answer_judge: a judge of answers."""

from __future__ import annotations

from typing import Any

from codegrep.config.setting import group, setting


@group
class AnswerJudgeConfig:
    """conf/answer_judge: who says, while training, whether an answer means the same as the reference (2605.07276)."""

    name: str = setting("label", default="none")
    judge: str | None = setting("dotted name of the judge's class; null: nobody is asked", default=None)
    params: dict[str, Any] = setting("its keyword arguments, checked by the class", default_factory=dict)
    max_failed_share: float = setting(
        "answers of a step without a judgement beyond which training stops; 1: never", ge=0, le=1, default=0.5
    )
