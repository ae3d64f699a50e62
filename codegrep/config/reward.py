"""conf/reward: the reward design."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class FunctionConfig:
    """conf/reward, and the factor of conf/advantage: dotted name of a pure function and its parameters."""

    name: str
    function: str
    params: dict[str, Any] = field(default_factory=dict)
