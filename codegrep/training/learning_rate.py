"""How long the learning rate rises."""

from __future__ import annotations


def warmup_steps(share: float, steps: int) -> int:
    """Optimiser steps of a linear warm-up: the share of all steps, rounded down.

    The first step of a warm-up has a learning rate of 0 and changes nothing. Rounded up, a run of three steps would
    spend one of them on it.
    """
    return int(share * steps + 1e-9)
