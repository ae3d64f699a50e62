"""conf/process: scores of turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class ProcessConfig:
    """conf/process: scores of turns that become weights of tokens (SPEC 4.2).

    Attributes:
        function: dotted name of a turn scorer, or None for equal weights. params: its keyword arguments.
        only_answered: rollouts without an answer keep equal weights.
        floor: smallest weight of a turn in a negative rollout, before rescaling (0.1).
        concurrency: rollouts scored at once; more than 1 only helps a scorer that asks a model.
    """

    name: str
    function: str | None
    params: dict[str, Any]
    only_answered: bool
    floor: float
    concurrency: int = 1
