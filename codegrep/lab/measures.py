"""Measures of a design on stored rollouts: signal, components, what it pushes, how two designs agree.

All comparisons are within groups, since that is all that GRPO sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegrep.lab.rescored import Floats, Rescored
from codegrep.lab.stored import Stored
from codegrep.metrics.scores import ROUNDING
from codegrep.rewards.calls import calls_per_turn
from codegrep.rewards.designs import OBSERVED

MAX_PAIRED = 64  # rollouts of a group whose order is compared; of a larger group the first ones


@dataclass(frozen=True)
class Component:
    """One part of a reward.

    Attributes:
        mean: over the scored rollouts.
        alone: share of the within-group variance of the reward that a line in this part alone explains (r²).
        unique: share lost when this part is taken out of all. A product's parts share most of what they explain, so
            neither column adds up to 1.
    """

    name: str
    mean: float
    alone: float
    unique: float


@dataclass(frozen=True)
class DesignMeasures:
    """One design on the stored rollouts.

    Attributes:
        scored: rollouts with a reward.
        failed: rollouts on which the design raised.
        reward_mean, reward_std: over the scored rollouts.
        group_std: standard deviation within a group, averaged over groups with two scored rollouts or more.
        groups: number of those groups.
        dead: share of those groups without two different rewards.
        mass_normalised, mass_factor, mass: mean |A| a rollout before the factor, after it, and after masks (times the
            share of its tokens in the loss): the size of the update that is left.
        effective: (Σ|w|)² / Σw² over all rollouts, divided by their number, w the last of these: the share of rollouts
            that an equal update would need.
        bias: mean advantage after the factor; 0 for a factor that does not tell good from bad.
        components: largest first.
        pushes: property of PROPERTIES -> Pearson's correlation with the final advantage; NaN where either never varies.
    """

    name: str
    summary: str
    rollouts: int
    scored: int
    failed: int
    reward_mean: float
    reward_std: float
    group_std: float
    groups: int
    dead: float
    mass_normalised: float
    mass_factor: float
    mass: float
    effective: float
    bias: float
    components: tuple[Component, ...]
    pushes: dict[str, float]


@dataclass(frozen=True)
class Agreement:
    """Two designs on the same rollouts.

    Attributes:
        tau: Kendall's tau-b of the rewards within a group, averaged over groups in which both have an order; NaN
            without any.
        flips: share of rollouts whose final advantages have opposite signs, of those where both are not 0.
    """

    first: str
    second: str
    tau: float
    flips: float


PROPERTIES = ("tokens", "turns", "calls", "calls_per_turn", "repeated_calls", "files")


def properties(stored: Stored) -> dict[str, Floats]:
    """Return (n,) sampled tokens, assistant turns, executed calls, c̄, share of repeated calls and answered files."""
    outcomes = stored.outcomes
    calls = np.array([sum(o.calls_per_turn) for o in outcomes], dtype=np.float64)
    unique = np.array([sum(o.unique_calls_per_turn or o.calls_per_turn) for o in outcomes], dtype=np.float64)
    return {
        "tokens": np.array([o.generated_tokens for o in outcomes], dtype=np.float64),
        "turns": np.array([o.turns for o in outcomes], dtype=np.float64),
        "calls": calls,
        "calls_per_turn": np.array([calls_per_turn(o) for o in outcomes], dtype=np.float64),
        "repeated_calls": np.divide(calls - unique, calls, out=np.zeros(len(calls)), where=calls > 0),
        "files": np.array([len(o.predicted) for o in outcomes], dtype=np.float64),
    }


def measure(stored: Stored, rescored: Rescored, of_rollouts: Mapping[str, Floats]) -> DesignMeasures:
    """Measure one design. of_rollouts: `properties(stored)`."""
    batch = rescored.batch
    scored = ~np.isnan(batch.rewards)
    rewards, groups = batch.rewards[scored], stored.groups[scored]
    count = np.bincount(groups, minlength=len(stored.group_names))
    compared = count >= 2
    centred = _centre(rewards, groups)
    variance = np.bincount(groups, centred**2, minlength=len(count))[compared] / (count[compared] - 1)
    alive = np.bincount(stored.groups, batch.alive)[compared] > 0
    weights = np.abs(batch.advantages) * rescored.kept
    mass, squares = float(weights.sum()), float((weights**2).sum())
    return DesignMeasures(
        name=rescored.design.name,
        summary=rescored.design.summary,
        rollouts=len(stored),
        scored=int(scored.sum()),
        failed=rescored.failed,
        reward_mean=_mean(rewards),
        reward_std=float(rewards.std()) if len(rewards) else np.nan,
        group_std=_mean(np.sqrt(variance)),
        groups=int(compared.sum()),
        dead=_mean((~alive).astype(np.float64)),
        mass_normalised=_mean(np.abs(batch.normalised)),
        mass_factor=_mean(np.abs(batch.advantages)),
        mass=mass / len(stored),
        effective=mass * mass / squares / len(stored) if squares else 0.0,
        bias=_mean(batch.advantages),
        components=_components(rescored, scored, groups, centred),
        pushes={name: _push(of_rollouts[name], rescored, stored) for name in PROPERTIES},
    )


def agreements(stored: Stored, all_rescored: Sequence[Rescored]) -> list[Agreement]:
    """Compare every pair of designs, in their order."""
    first, second = pairs_within(stored.groups)
    of_pair, groups = stored.groups[first], len(stored.group_names)
    # NaN has no order: its sign is made 0, as a tie.
    orders = [
        np.nan_to_num(_signs(r.batch.rewards[first] - r.batch.rewards[second])).astype(np.int8) for r in all_rescored
    ]
    ordered = [np.bincount(of_pair, np.abs(order), minlength=groups) for order in orders]
    result = []
    for i, one in enumerate(all_rescored):
        for j, other in list(enumerate(all_rescored))[i + 1 :]:
            agreed = np.bincount(of_pair, orders[i] * orders[j], minlength=groups)
            both = (ordered[i] > 0) & (ordered[j] > 0)
            tau = agreed[both] / np.sqrt(ordered[i][both] * ordered[j][both])
            a, b = _signs(one.batch.advantages), _signs(other.batch.advantages)
            flipped = (a != b)[(a != 0) & (b != 0)]
            result.append(Agreement(one.design.name, other.design.name, _mean(tau), _mean(flipped.astype(np.float64))))
    return result


def pairs_within(groups: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return every pair of rollouts of one group, as (2, pairs) indices; MAX_PAIRED rollouts of a group at most."""
    order = np.argsort(groups, kind="stable")
    bounds = np.flatnonzero(np.diff(groups[order])) + 1
    pairs = [
        members[np.stack(np.triu_indices(min(len(members), MAX_PAIRED), 1))] for members in np.split(order, bounds)
    ]
    return np.concatenate(pairs, axis=1)


def _signs(values: Floats) -> Floats:
    signs: Floats = np.where(np.abs(values) > ROUNDING, np.sign(values), values * 0.0)
    return signs


def _components(
    rescored: Rescored, scored: NDArray[np.bool_], groups: NDArray[np.intp], centred: Floats
) -> tuple[Component, ...]:
    values = {name: np.nan_to_num(part[scored]) for name, part in rescored.parts.items() if name not in OBSERVED}
    columns = {name: _centre(value, groups) for name, value in values.items()}
    varying = {name: c for name, c in columns.items() if float((c**2).sum()) > 1e-12 * max(len(groups), 1)}
    whole = _explained(list(varying.values()), centred)
    components = []
    for name, value in values.items():
        alone = unique = 0.0
        if name in varying:
            alone = _explained([varying[name]], centred)
            others = [column for other, column in varying.items() if other != name]
            unique = max(whole - _explained(others, centred), 0.0)
        components.append(Component(name, _mean(value), alone, unique))
    return tuple(sorted(components, key=lambda component: -component.alone))


def _explained(columns: Sequence[Floats], target: Floats) -> float:
    """Return R² of the least squares of `target` on `columns`, all centred."""
    total = float((target**2).sum())
    if not columns or total <= 0:
        return 0.0
    matrix = np.column_stack(columns)
    # The normal equations: a handful of columns and up to millions of rows.
    weights, *_ = np.linalg.lstsq(matrix.T @ matrix, matrix.T @ target, rcond=1e-10)
    rest = target - matrix @ weights
    return float(min(max(1.0 - float(rest @ rest) / total, 0.0), 1.0))


def _push(values: Floats, rescored: Rescored, stored: Stored) -> float:
    batch = rescored.batch
    inside = ~np.isnan(batch.rewards) & batch.alive
    groups = stored.groups[inside]
    x, a = _centre(values[inside], groups), _centre(batch.advantages[inside], groups)
    scale = float(np.sqrt((x @ x) * (a @ a)))
    return float(x @ a) / scale if scale > 1e-12 else np.nan


def _centre(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """Return values minus the mean of their group."""
    count = np.bincount(groups)
    return values - (np.bincount(groups, values) / np.maximum(count, 1))[groups] if len(values) else values


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else np.nan
