"""conf/sweep: a search over values of the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class SearchConfig:
    """conf/sweep: a search over values of the configuration (cluster.search); without it an experiment is one run.

    Attributes:
        name: of the search.
        space: key of the configuration -> {low, high, log, integer} or {choices}.
        trials: how many points are tried.
        grace: optimiser steps before a trial may be ended. reduction: one trial in so many goes on beyond a rung.
        at_once: most trials side by side; 0: as many as the cluster carries.
        seed: of the proposals.
    """

    name: str
    space: dict[str, dict[str, Any]]
    trials: int
    grace: int
    reduction: int
    at_once: int = 0
    seed: int = 0
