"""A softmax policy over scripted behaviours, trained with the exact gradient of a design's objective.

It predicts what training with a design would reward, on the small model of searching in `search_model`. It is neither a
result of a paper nor a training run.

The advantage of outcome o of behaviour b on issues of kind d is A = s(o)·(R(o) - μ_d)/(σ_d + ε), with mean and
deviation over the policy's own outcomes on that kind: the limit of infinitely large groups (where leave-one-out is the
mean). With π = softmax(θ), and ā_b the mean of A over kinds and outcomes,

    g_b = π_b·(ā_b - Σ_c π_c ā_c) - kl·π_b·(log(π_b/π⁰_b) - KL(π‖π⁰))

is the exact policy gradient with the advantages held fixed, as in GRPO. Masked outcomes have A = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegrep.lab.designs import Design
from codegrep.lab.search_model import Assumptions, Behaviour, Chance, behaviours, chances
from codegrep.metrics.scores import f_beta
from codegrep.rewards.advantage import STD_EPS
from codegrep.rewards.calls import calls_per_turn
from codegrep.rewards.governance import Conduct
from codegrep.rewards.outcome import Outcome
from codegrep.rewards.signal import score_rollout

Floats = NDArray[np.float64]
TRACES = (
    "reward",
    "f05",
    "answered",
    "calls_per_turn",
    "tool_turns",
    "calls",
    "repeated",
    "files",
    "tokens",
    "reads",
    "kl",
)


@dataclass(frozen=True)
class Schedule:
    """How the policy is trained.

    Attributes:
        steps: gradient steps.
        learning_rate: of plain gradient ascent on θ.
        kl: coefficient of KL to the initial policy; None takes the design's own.
    """

    steps: int = 1000
    learning_rate: float = 0.5
    kl: float | None = None


@dataclass(frozen=True)
class Run:
    """One design's training.

    Attributes:
        curves: TRACES -> (steps + 1,) expectation under the policy, before the first step and after each.
        policy: (arms,) at the end, in the order of `behaviours`.
        favourite: the likeliest behaviour at the end.
        schedule: with the coefficient of KL used.
    """

    design: str
    curves: dict[str, Floats]
    policy: Floats
    favourite: Behaviour
    schedule: Schedule = field(default_factory=Schedule)

    def as_json(self) -> dict[str, Any]:
        """Return plain data, with the label that it must not be shown without."""
        return {
            "design": self.design,
            "label": LABEL,
            "schedule": asdict(self.schedule),
            "favourite": asdict(self.favourite),
            "favourite_probability": float(self.policy.max()),
            "curves": {name: curve.tolist() for name, curve in self.curves.items()},
        }


LABEL = "prediction of the design by a bandit-sized model of searching; no result of a paper, no training run"


@dataclass(frozen=True)
class _Arms:
    """All outcomes of all behaviours on all kinds of issues, as flat arrays of (n,)."""

    arm: NDArray[np.intp]
    kind: NDArray[np.intp]
    probability: Floats  # of the outcome, given behaviour and kind
    rewards: Floats  # NaN: outside of the group
    factors: Floats  # times the share of the rollout that governance keeps
    traces: dict[str, Floats]


def train(design: Design, schedule: Schedule | None = None) -> Run:
    """Train one design from `initial_policy`; deterministic, since nothing is sampled."""
    plan, arms = schedule or Schedule(), behaviours()
    kl = design.kl if plan.kl is None else plan.kl
    world = _enumerate(design, arms, Assumptions())
    start = initial_policy(arms)
    theta = np.log(start)
    curves: dict[str, list[float]] = {name: [] for name in TRACES}
    for step in range(plan.steps + 1):
        policy = _softmax(theta)
        for name, value in _expectations(world, policy, start).items():
            curves[name].append(value)
        if step < plan.steps:
            theta = theta + plan.learning_rate * gradient(world, policy, start, design, kl)
    favourite = arms[int(policy.argmax())]
    shown = {name: np.array(curve) for name, curve in curves.items()}
    return Run(design.name, shown, policy, favourite, replace(plan, kl=kl))


def initial_policy(arms: Sequence[Behaviour]) -> Floats:
    """Return an untrained model that can call tools: 2-3 turns of about four calls, some repeats, mostly one file."""
    weights = np.array([_prior(arm) for arm in arms])
    shares: Floats = weights / weights.sum()
    return shares


def gradient(world: _Arms, policy: Floats, start: Floats, design: Design, kl: float) -> Floats:
    """Return the gradient g, (arms,); the module's docstring has the formula."""
    kinds = int(world.kind.max()) + 1
    mean = np.bincount(world.arm, world.probability * advantages(world, policy, design) / kinds, minlength=len(policy))
    log_ratio = np.log(policy / start)
    slope: Floats = policy * (mean - policy @ mean) - kl * policy * (log_ratio - policy @ log_ratio)
    return slope


def advantages(world: _Arms, policy: Floats, design: Design) -> Floats:
    """Return the final advantage of every outcome under this policy, (n,)."""
    weight = policy[world.arm] * world.probability * ~np.isnan(world.rewards)
    rewards = np.nan_to_num(world.rewards)
    kinds = world.kind.max() + 1
    total = np.maximum(np.bincount(world.kind, weight, minlength=kinds), 1e-12)
    mean = np.bincount(world.kind, weight * rewards, minlength=kinds) / total
    centred = rewards - mean[world.kind]
    variance = np.bincount(world.kind, weight * centred**2, minlength=kinds) / total
    if design.signal.scale == "group":
        centred = centred / (np.sqrt(variance) + STD_EPS)[world.kind]
    elif design.signal.scale == "batch":
        overall = rewards - (weight @ rewards) / weight.sum()
        centred = centred / (np.sqrt(weight @ overall**2 / weight.sum()) + STD_EPS)
    shaped: Floats = np.where(np.isnan(world.rewards), 0.0, centred * world.factors)
    return shaped


def _enumerate(design: Design, arms: Sequence[Behaviour], model: Assumptions) -> _Arms:
    rows: list[tuple[int, int, Chance]] = [
        (index, kind, chance)
        for index, arm in enumerate(arms)
        for kind, difficulty in enumerate(model.difficulties)
        for chance in chances(arm, difficulty, model)
    ]
    scores = [_score(design, chance.outcome) for _, _, chance in rows]
    outcomes = [chance.outcome for _, _, chance in rows]
    return _Arms(
        arm=np.array([index for index, _, _ in rows], dtype=np.intp),
        kind=np.array([kind for _, kind, _ in rows], dtype=np.intp),
        probability=np.array([chance.probability for _, _, chance in rows]),
        rewards=np.array([reward for reward, _ in scores]),
        factors=np.array([factor for _, factor in scores]),
        traces={
            "f05": np.array([f_beta(o.predicted, o.gold) for o in outcomes]),
            "answered": np.array([float(o.answered) for o in outcomes]),
            "calls_per_turn": np.array([calls_per_turn(o) for o in outcomes]),
            "tool_turns": np.array([float(arms[index].turns) for index, _, _ in rows]),
            "calls": np.array([float(sum(o.calls_per_turn)) for o in outcomes]),
            "repeated": np.array(
                [1.0 - arms[i].distinct / arms[i].calls if arms[i].calls else 0.0 for i, _, _ in rows]
            ),
            "files": np.array([float(arms[index].files) for index, _, _ in rows]),
            "tokens": np.array([float(o.generated_tokens) for o in outcomes]),
            "reads": np.array([float(arms[index].reads) for index, _, _ in rows]),
        },
    )


def _score(design: Design, outcome: Outcome) -> tuple[float, float]:
    """Return the reward, and the factor times the share of the rollout that governance keeps."""
    score = score_rollout(outcome, Conduct(outcome.exit_cause, outcome.calls_per_turn), design.signal)
    if score.reward is None:
        return np.nan, 0.0
    kept = score.decision.kept_turns
    return score.reward.total, score.factor * sum(kept) / max(len(kept), 1)


def _expectations(world: _Arms, policy: Floats, start: Floats) -> dict[str, float]:
    weight = policy[world.arm] * world.probability / (world.kind.max() + 1)
    values = {name: float(weight @ trace) for name, trace in world.traces.items()}
    kl = max(float(policy @ np.log(policy / start)), 0.0)
    return {"reward": float(weight @ np.nan_to_num(world.rewards)), "kl": kl, **values}


def _prior(arm: Behaviour) -> float:
    turns = {0: 0.05, 1: 0.2, 2: 0.35, 3: 0.4}[arm.turns]
    calls = {0: 1.0, 1: 0.15, 2: 0.3, 4: 0.4, 8: 0.15}[arm.calls]
    return turns * calls * (0.25 if arm.repeats else 0.75) * 0.5 * (0.65 if arm.files == 1 else 0.35)


def _softmax(theta: Floats) -> Floats:
    raised = np.exp(theta - theta.max())
    floored = np.maximum(raised / raised.sum(), 1e-30)
    shares: Floats = floored / floored.sum()
    return shares
