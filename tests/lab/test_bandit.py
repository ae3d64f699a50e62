"""The simulator's gradient, its bounds, and what it predicts of each design."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from codegrep.cli import COMMANDS, run
from codegrep.lab.bandit import LABEL, Run, Schedule, _enumerate, advantages, gradient, initial_policy, train
from codegrep.lab.bandit_report import HEAD, simulation_rows
from codegrep.lab.designs import SHIPPED, Design, load_designs
from codegrep.lab.search_model import Assumptions, Behaviour, behaviours, chances, tokens_of
from codegrep.lab.tables import markdown_table
from codegrep.rewards.designs import v3
from codegrep.rewards.signal import TrainingSignal

DOCS = Path(__file__).parents[2] / "docs"
ARMS = behaviours()


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {design.name: train(design) for design in load_designs(SHIPPED)}


@pytest.mark.parametrize("difficulty", [1.0, 5.0])
def test_probabilities_add_up_to_one(difficulty: float) -> None:
    for arm in ARMS:
        possible = chances(arm, difficulty, Assumptions())
        assert sum(chance.probability for chance in possible) == pytest.approx(1.0)
        assert all(chance.probability >= 0 for chance in possible)
        assert all(max(chance.outcome.calls_per_turn) <= 8 for chance in possible)
    assert len(set(ARMS)) == len(ARMS)


def test_more_distinct_calls_find_more_and_repeats_do_not() -> None:
    def found(arm: Behaviour) -> float:
        return sum(
            c.probability for c in chances(arm, 2.0, Assumptions(budget=10**6)) if "gold_0.py" in c.outcome.predicted
        )

    one, four = Behaviour(1, 1, False, False, 3), Behaviour(1, 4, False, False, 3)
    assert found(four) > found(one)
    assert found(Behaviour(1, 8, True, False, 3)) == pytest.approx(found(four))
    assert tokens_of(Behaviour(1, 8, True, False, 3), Assumptions()) > tokens_of(four, Assumptions())


def test_the_gradient_is_exact() -> None:
    # J(θ) = Σ_b π_b ā_b - kl·KL(π‖π⁰) with ā fixed, as in GRPO; its derivative by finite differences.
    design = Design("v3", TrainingSignal(v3))
    world, start = _enumerate(design, ARMS, Assumptions()), initial_policy(ARMS)
    theta = np.log(start) + np.random.default_rng(0).normal(0, 0.3, len(ARMS))

    def softmax(t: np.ndarray) -> np.ndarray:
        return np.exp(t - t.max()) / np.exp(t - t.max()).sum()

    policy = softmax(theta)
    fixed = np.bincount(world.arm, world.probability * advantages(world, policy, design), minlength=len(ARMS)) / 2

    def objective(t: np.ndarray) -> float:
        p = softmax(t)
        return float(p @ fixed - 0.1 * (p @ np.log(p / start)))

    exact = gradient(world, policy, start, design, kl=0.1)
    for arm in range(0, len(ARMS), 7):
        step = np.zeros(len(ARMS))
        step[arm] = 1e-5
        assert exact[arm] == pytest.approx((objective(theta + step) - objective(theta - step)) / 2e-5, abs=1e-8)
    assert exact.sum() == pytest.approx(0.0, abs=1e-12)


def test_advantages_have_mean_zero_without_a_factor() -> None:
    design = Design("v3", TrainingSignal(v3))
    world, policy = _enumerate(design, ARMS, Assumptions()), initial_policy(ARMS)
    weight = policy[world.arm] * world.probability
    assert weight @ advantages(world, policy, design) == pytest.approx(0.0, abs=1e-12)


def test_plain_reward_rises_at_every_step() -> None:
    done = train(Design("v3", TrainingSignal(v3, scale="none")), Schedule(steps=200, learning_rate=0.5, kl=0.0))
    assert (np.diff(done.curves["reward"]) > -1e-12).all()


def test_a_strong_kl_keeps_the_policy(runs: dict[str, Run]) -> None:
    held = train(Design("v3", TrainingSignal(v3)), Schedule(steps=300, learning_rate=0.5, kl=2.0))
    assert held.curves["kl"][-1] < 0.1 < runs["v3"].curves["kl"][-1]


def test_each_design_is_held_by_its_own_kl(runs: dict[str, Run]) -> None:
    # conf/loss: CodeGrep 0.02, 2605.07276 (tiered) 0.01; colgrep, CodeScout (gspo) and SWE-grep have none.
    own = {"v1": 0.02, "v2": 0.02, "v3": 0.02, "tiered": 0.01}
    assert {name: run.schedule.kl for name, run in runs.items()} == {name: own.get(name, 0.0) for name in runs}
    without = train(load_designs(["codescout"])[0], Schedule(kl=0.0))
    assert (without.policy == runs["codescout"].policy).all()
    (free,) = load_designs(["free: +experiment=v3 train.grpo.kl=0"])
    held, loose = train(free, Schedule(steps=50, kl=0.5)), train(free, Schedule(steps=50))
    assert loose.schedule.kl == 0.0 and held.curves["kl"][-1] < loose.curves["kl"][-1]


def test_predictions(runs: dict[str, Run]) -> None:
    end = {name: {key: float(curve[-1]) for key, curve in run.curves.items()} for name, run in runs.items()}
    start = float(runs["v1"].curves["calls_per_turn"][0])
    assert end["v1"]["calls_per_turn"] < start < end["v2"]["calls_per_turn"]
    assert end["v2"]["tokens"] > end["v3"]["tokens"]
    assert end["v2"]["reads"] > 0.9 > 0.1 > end["v3"]["reads"]
    assert end["colgrep_f2"]["files"] > end["v3"]["files"]


def test_runs_are_the_same_each_time(runs: dict[str, Run]) -> None:
    again = train(load_designs(["v2"])[0])
    assert (again.policy == runs["v2"].policy).all()
    assert all((again.curves[name] == runs["v2"].curves[name]).all() for name in again.curves)


def test_the_documentation_ships_this_result(runs: dict[str, Run]) -> None:
    text = (DOCS / "explanation" / "reward-designs.md").read_text(encoding="utf-8")
    start, *rows = simulation_rows(list(runs.values()))
    assert markdown_table(HEAD, [start, *([f"`{row[0]}`", *row[1:]] for row in rows)]) in text
    assert LABEL in " ".join(text.split())


def test_the_command_labels_its_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, numbers = tmp_path / "page.html", tmp_path / "curves.json"
    argv = ["--design", "v1", "--steps", "20", "--html", str(page), "--json", str(numbers)]
    assert run(COMMANDS["simulate"], argv) == 0
    assert LABEL in capsys.readouterr().out
    assert LABEL in page.read_text(encoding="utf-8")
    (row,) = json.loads(numbers.read_text(encoding="utf-8"))
    assert row["label"] == LABEL
    assert len(row["curves"]["tokens"]) == 21
