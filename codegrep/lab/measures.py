"""What a design makes of stored rollouts, in numbers: signal, components, what it pushes, how two designs agree.

All comparisons are within groups, for that is all that GRPO sees: between issues nothing is compared.
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

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MAX_PAIRED = 64  # rollouts of a group whose order is compared; of a larger group the first ones


@dataclass(frozen=True)
class Component:
    """One part of a reward.

    Attributes:
        mean: over the scored rollouts.
        alone: share of the within-group variance of the reward that a line in this part alone explains (r²).
        unique: what is lost of the explained share when this part is taken out of all. A product's parts share most of
            what they explain, so neither column adds up to 1.
    """

    name: str
    mean: float
    alone: float
    unique: float


@dataclass(frozen=True)
class Push:
    """How the advantages go with a property of the rollouts, within groups.

    Attributes:
        correlation: Pearson's, of the final advantage and the property; NaN where either never varies.
        raised, lowered: mean of the property over rollouts with positive and with negative advantage, weighted by |A|.
    """

    name: str
    correlation: float
    raised: float
    lowered: float


@dataclass(frozen=True)
class DesignMeasures:
    """One design on the stored rollouts.

    Attributes:
        scored: rollouts with a reward. failed: see Rescored.
        reward_mean, reward_std, reward_quantiles: over the scored rollouts; QUANTILES.
        group_std: standard deviation within a group, averaged over groups with two scored rollouts or more.
        dead: share of those groups without two different rewards.
        mass_normalised, mass_factor, mass: mean |A| a rollout before the factor, after it, and after masks (times the
            share of its tokens in the loss): the size of the update that is left.
        effective: (Σ|w|)² / Σw² over all rollouts, divided by their number, w the last of these: the share of rollouts
            that an equal update would need.
        positive: share of the last mass that raises rollouts.
        bias: mean advantage after the factor; 0 for a factor that does not tell good from bad.
        components: largest first.
        pushes: in the order of PROPERTIES.
    """

    name: str
    summary: str
    rollouts: int
    scored: int
    failed: int
    reward_mean: float
    reward_std: float
    reward_quantiles: tuple[float, ...]
    group_std: float
    groups: int
    dead: float
    mass_normalised: float
    mass_factor: float
    mass: float
    effective: float
    positive: float
    bias: float
    components: tuple[Component, ...]
    pushes: tuple[Push, ...]


@dataclass(frozen=True)
class Agreement:
    """Two designs on the same rollouts.

    Attributes:
        tau: Kendall's tau-b of the rewards within a group, averaged over groups in which both have an order; NaN
            without any.
        groups: how many those are.
        flips: share of rollouts whose final advantages have opposite signs, of those where both are not 0.
        silenced: share of rollouts that the first moves and the second does not.
        awakened: the other way round.
    """

    first: str
    second: str
    tau: float
    groups: int
    flips: float
    silenced: float
    awakened: float


PROPERTIES = ("tokens", "turns", "calls", "calls_per_turn", "repeated_calls", "files")


def properties(stored: Stored) -> dict[str, Floats]:
    """(n,) of each property: sampled tokens, assistant turns, executed calls, c̄, share of repeated calls, files."""
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
    """Numbers of one design. of_rollouts: `properties(stored)`."""
    scored = ~np.isnan(rescored.rewards)
    rewards, groups = rescored.rewards[scored], stored.groups[scored]
    count = np.bincount(groups, minlength=len(stored.group_names))
    compared = count >= 2
    centred = centre(rewards, groups)
    variance = np.bincount(groups, centred**2, minlength=len(count))[compared] / (count[compared] - 1)
    advantages = rescored.advantages
    weights = np.abs(advantages) * rescored.kept
    mass = float(weights.sum())
    squares = float((weights**2).sum())
    return DesignMeasures(
        name=rescored.design.name,
        summary=rescored.design.summary,
        rollouts=len(stored),
        scored=int(scored.sum()),
        failed=rescored.failed,
        reward_mean=_mean(rewards),
        reward_std=float(rewards.std()) if len(rewards) else np.nan,
        reward_quantiles=tuple(float(q) for q in np.quantile(rewards, QUANTILES)) if len(rewards) else (),
        group_std=_mean(np.sqrt(variance)),
        groups=int(compared.sum()),
        dead=_mean((~rescored.alive[compared]).astype(np.float64)),
        mass_normalised=_mean(np.abs(rescored.normalised)),
        mass_factor=_mean(np.abs(advantages)),
        mass=mass / len(stored),
        effective=mass * mass / squares / len(stored) if squares else 0.0,
        positive=float(weights[advantages > 0].sum()) / mass if mass else np.nan,
        bias=_mean(advantages),
        components=_components(rescored, scored, groups, centred),
        pushes=tuple(_push(name, of_rollouts[name], advantages, rescored, stored) for name in PROPERTIES),
    )


def centre(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """(n,) values minus the mean of their group."""
    count = np.bincount(groups)
    return values - (np.bincount(groups, values) / np.maximum(count, 1))[groups] if len(values) else values


def agreements(stored: Stored, all_rescored: Sequence[Rescored]) -> list[Agreement]:
    """Every pair of designs, in their order."""
    first, second = pairs_within(stored.groups)
    of_pair = stored.groups[first]
    # NaN has no order: its sign is made 0, as a tie.
    signs = [np.nan_to_num(_signs(r.rewards[first] - r.rewards[second])).astype(np.int8) for r in all_rescored]
    groups = len(stored.group_names)
    ordered = [np.bincount(of_pair, np.abs(sign), minlength=groups) for sign in signs]
    found = []
    for i, one in enumerate(all_rescored):
        for j in range(i + 1, len(all_rescored)):
            other = all_rescored[j]
            agreed = np.bincount(of_pair, signs[i] * signs[j], minlength=groups)
            both = (ordered[i] > 0) & (ordered[j] > 0)
            tau = agreed[both] / np.sqrt(ordered[i][both] * ordered[j][both])
            a, b = _signs(one.advantages), _signs(other.advantages)
            moved = (a != 0) & (b != 0)
            found.append(
                Agreement(
                    one.design.name,
                    other.design.name,
                    _mean(tau),
                    int(both.sum()),
                    _mean((a != b)[moved].astype(np.float64)),
                    _mean(((a != 0) & (b == 0)).astype(np.float64)),
                    _mean(((a == 0) & (b != 0)).astype(np.float64)),
                )
            )
    return found


def _signs(values: Floats) -> Floats:
    signs: Floats = np.where(np.abs(values) > ROUNDING, np.sign(values), values * 0.0)
    return signs


def pairs_within(groups: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Every pair of rollouts of one group, as two arrays of indices; MAX_PAIRED rollouts of a group at most."""
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups) if len(groups) else np.array([], dtype=np.intp)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else sizes
    firsts, seconds = [], []
    used = np.minimum(sizes, MAX_PAIRED)
    for size in np.unique(used[used >= 2]):
        members = order[starts[used == size][:, None] + np.arange(size)]
        upper, lower = np.triu_indices(int(size), 1)
        firsts.append(members[:, upper].ravel())
        seconds.append(members[:, lower].ravel())
    if not firsts:
        return np.array([], dtype=np.intp), np.array([], dtype=np.intp)
    return np.concatenate(firsts), np.concatenate(seconds)


def _components(
    rescored: Rescored, scored: NDArray[np.bool_], groups: NDArray[np.intp], centred: Floats
) -> tuple[Component, ...]:
    names = [name for name in rescored.parts if name not in OBSERVED]
    values = {name: np.nan_to_num(rescored.parts[name][scored]) for name in names}
    columns = {name: centre(value, groups) for name, value in values.items()}
    total = float((centred**2).sum())
    varying = [name for name in names if float((columns[name] ** 2).sum()) > 1e-12 * max(len(groups), 1)]
    whole = _explained([columns[name] for name in varying], centred, total)
    found = []
    for name in names:
        alone = _explained([columns[name]], centred, total) if name in varying else 0.0
        others = [columns[other] for other in varying if other != name]
        unique = whole - _explained(others, centred, total) if name in varying else 0.0
        found.append(Component(name, _mean(values[name]), alone, max(unique, 0.0)))
    return tuple(sorted(found, key=lambda component: -component.alone))


def _explained(columns: Sequence[Floats], target: Floats, total: float) -> float:
    """R² of the least squares of `target` on `columns`, both centred."""
    if not columns or total <= 0:
        return 0.0
    matrix = np.column_stack(columns)
    # The normal equations: a handful of columns and up to millions of rows.
    weights, *_ = np.linalg.lstsq(matrix.T @ matrix, matrix.T @ target, rcond=1e-10)
    rest = target - matrix @ weights
    return float(min(max(1.0 - float(rest @ rest) / total, 0.0), 1.0))


def _push(name: str, values: Floats, advantages: Floats, rescored: Rescored, stored: Stored) -> Push:
    inside = ~np.isnan(rescored.rewards) & rescored.alive[stored.groups]
    x, a = centre(values[inside], stored.groups[inside]), centre(advantages[inside], stored.groups[inside])
    spread = float(np.sqrt((x @ x) * (a @ a)))
    positive, negative = np.maximum(advantages, 0.0), np.maximum(-advantages, 0.0)
    return Push(
        name,
        float(x @ a) / spread if spread > 1e-12 else np.nan,
        float(positive @ values / positive.sum()) if positive.sum() else np.nan,
        float(negative @ values / negative.sum()) if negative.sum() else np.nan,
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else np.nan
