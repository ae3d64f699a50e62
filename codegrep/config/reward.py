"""conf/reward: the reward design."""

from __future__ import annotations

from typing import Any

from codegrep.config.setting import group, setting


@group
class FunctionConfig:
    """A pure function and its parameters: conf/reward, and the factor of conf/advantage."""

    name: str = setting("label")
    function: str = setting("dotted name of a pure function")
    params: dict[str, Any] = setting("its keyword arguments, checked against its signature", default_factory=dict)
