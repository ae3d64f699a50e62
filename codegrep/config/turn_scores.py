"""conf/turn_scores: scores of turns."""

from __future__ import annotations

from typing import Any

from codegrep.config.setting import group, setting


@group
class TurnScoresConfig:
    """conf/turn_scores: scores of turns that become weights of tokens (arXiv 2605.07276)."""

    name: str = setting("label")
    function: str | None = setting("dotted name of a turn scorer; null: equal weights")
    params: dict[str, Any] = setting("its keyword arguments, checked against its signature")
    only_answered: bool = setting("rollouts without an answer keep equal weights", paper="2605.07276: compiled ones")
    floor: float = setting("smallest weight of a turn in a negative rollout, before rescaling", gt=0, paper="0.1")
    concurrency: int = setting("rollouts scored at once, for a scorer that asks a model", ge=1, default=1)
