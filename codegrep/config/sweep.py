"""conf/sweep: a search over values of the configuration."""

from __future__ import annotations

from typing import Any

from codegrep.config.setting import group, setting


@group
class SearchConfig:
    """conf/sweep: a search over values of the configuration; without it an experiment is one run."""

    name: str = setting("of the search")
    space: dict[str, dict[str, Any]] = setting("key -> {low, high, log, integer} or {choices}", min_length=1)
    trials: int = setting("points that are tried", ge=1)
    grace: int = setting("optimiser steps before a trial may be ended", ge=1)
    reduction: int = setting("one trial in so many goes on beyond a rung", ge=2)
    at_once: int = setting("trials side by side at most; 0: as many as fit", ge=0, default=0)
    seed: int = setting("of the proposals", ge=0, default=0)
