"""What the two trainers ask of transformers alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def common_arguments(output_dir: Path, steps: int, warmup_share: float, seed: int, use_cpu: bool) -> dict[str, Any]:
    """Return the arguments that the warm start and GRPO share.

    Args:
        output_dir: for checkpoints.
        steps: optimiser steps in all.
        warmup_share: of the steps, rounded down: the first step of a warm-up has learning rate 0, and rounded up a run
            of three steps would spend one of them on it.
        seed: of data order and dropout.
        use_cpu: there the base's dtype is used throughout, for autocast only adds copies.
    """
    return {
        "output_dir": str(output_dir),
        "max_steps": steps,
        "warmup_steps": int(warmup_share * steps + 1e-9),
        "logging_strategy": "steps",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "seed": seed,
        "data_seed": seed,
        "use_cpu": use_cpu,
        "bf16": not use_cpu,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "report_to": [],
        "ddp_find_unused_parameters": False,
    }
