"""What the runs of a design cost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from codegrep.compare.designs import ComparedDesign
from codegrep.compare.runs import RunRecord


@dataclass(frozen=True)
class Cost:
    """One run's training; None where it was not recorded.

    Attributes:
        steps: optimiser steps.
        rollouts: sampled in them, also those in the place of dropped groups and those that were lost.
        generated: their sampled tokens.
        tokens: of prompts and completions, tool text too, that the steps were trained on, once for every update.
        seconds: wall time of all steps; a step that was done again after a restart counts once.
        cpu_reserved, gpu_reserved: seconds of CPUs and GPUs that the training workers held (workers x what each asks
            for x wall time).
        cpu_used: CPU seconds of the training worker on rank 0.
    """

    steps: int
    rollouts: int | None
    generated: float | None
    tokens: float | None
    seconds: float | None
    cpu_reserved: float | None
    gpu_reserved: float | None
    cpu_used: float | None


@dataclass(frozen=True)
class CostRow:
    """One kind of cost, for people: label, unit, and the mean over the runs of each design, in the designs' order."""

    label: str
    unit: str
    values: tuple[float | None, ...]


def cost_of(run: RunRecord) -> Cost:
    """Return what a run's training cost, from its curves and its configuration."""
    rows = [row for row in run.curves if "optim/tokens" in row]
    # With several updates a batch, rollouts are sampled in the first of them alone.
    sampled = [row for row in rows if "group/drawn" in row]
    group, groups = _product(run, "train.grpo.group_size"), _sum(sampled, "group/drawn")
    seconds = _sum(rows, "seconds/step")
    workers = _product(run, "train.workers")
    cpus, gpus = _product(run, "train.workers", "train.cpus_per_worker"), workers
    on_gpu = run.params.get("train.use_gpu", "").lower() == "true"
    return Cost(
        steps=len(rows),
        rollouts=None if groups is None or group is None else round(groups * group),
        generated=_sum(sampled, "completions/sampled"),
        tokens=_sum(rows, "optim/tokens"),
        seconds=seconds,
        cpu_reserved=None if seconds is None or cpus is None else seconds * cpus,
        gpu_reserved=None if seconds is None or gpus is None else seconds * gpus * on_gpu,
        cpu_used=_sum(rows, "seconds/cpu"),
    )


def cost_rows(designs: Sequence[ComparedDesign]) -> list[CostRow]:
    """Means over the runs of each design; a kind that no run recorded is left out."""
    costs = [[cost_of(run) for run in design.runs] for design in designs]
    kinds: tuple[tuple[str, str, Callable[[Cost], float | None]], ...] = (
        ("optimiser steps", "", lambda cost: float(cost.steps)),
        ("rollouts", "", lambda cost: None if cost.rollouts is None else float(cost.rollouts)),
        ("sampled tokens", "tokens", lambda cost: cost.generated),
        ("tokens trained on", "tokens", lambda cost: cost.tokens),
        ("wall time of training", "s", lambda cost: cost.seconds),
        ("CPU time, reserved", "CPU s", lambda cost: cost.cpu_reserved),
        ("CPU time, used by the trainer", "CPU s", lambda cost: cost.cpu_used),
        ("GPU time, reserved", "GPU s", lambda cost: cost.gpu_reserved),
    )
    rows = []
    for label, unit, pick in kinds:
        values = tuple(_mean([pick(cost) for cost in of_design]) for of_design in costs)
        if any(value is not None for value in values):
            rows.append(CostRow(label, unit, values))
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    """None as soon as one run lacks the number: a mean over the others would be of something else."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _sum(rows: Sequence[dict[str, float]], name: str) -> float | None:
    values = [row[name] for row in rows if name in row]
    return sum(values) if values and len(values) == len(rows) else None


def _product(run: RunRecord, *keys: str) -> float | None:
    product = 1.0
    for key in keys:
        try:
            product *= float(run.params[key])
        except (KeyError, ValueError):
            return None
    return product
