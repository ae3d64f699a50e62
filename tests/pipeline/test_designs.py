"""The designs of the papers as experiments: real issues, a few real GRPO steps, curves under the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.pipeline.experiments import SMALL, STEPS, Experiment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
DESIGNS = ("v1", "v2", "v3", "swe_grep", "colgrep", "codescout", "signal_reshaping")
# What is a design's own: parts of its reward, turn scores, the correction for the sampler. Two are there when a model
# made a call at all.
OWN = (
    *("reward/", "kept/", "turn_scores/", "policy/sequence_"),
    *("errors/parse", "rollout/duplicate_calls"),
)
# Logged where tokens are in the loss: colgrep drops groups without spread, and those of an untrained model have none.
OF_AN_UPDATE = ("policy/kl", "policy/entropy", "policy/clip_ratio_region", "policy/ess", "policy/logprob_gap")
COMMON = (
    "reward/total",
    "completions/clipped_ratio",
    "completions/mean_length",
    "optim/tokens",
    "advantage/factor",
    "advantage/mean_abs",
    "advantage/mass",
    "group/dead_rate",
    "group/reward_std",
    "group/reward_range",
    "group/scored",
    "masked/tokens",
    "masked/max_tokens",
    "masked/infrastructure",
    "guard/kl",
    "guard/dead_groups",
    "rollout/f05",
    "rollout/calls_per_turn",
    "optim/loss",
    "optim/grad_norm",
)


def arguments_of(design: str) -> tuple[str, ...]:
    """The command line of a design, as small as it gets; test_design_arguments.py composes it without running it."""
    return (f"+experiment={design}", *SMALL[1:])


@pytest.fixture(scope="module")
def experiment(shared_experiment: Callable[..., Experiment]) -> Experiment:
    """One folder for all: what does not depend on the design is made once."""
    return shared_experiment()


@pytest.fixture(scope="module")
def curves(experiment: Experiment) -> dict[str, dict[str, dict[int, float]]]:
    """Design -> metric -> step -> value, of runs that all ended well."""
    found = {}
    for design in DESIGNS:
        experiment.arguments = arguments_of(design)
        running = experiment.run("stages=[prepare,warm_start,train]", timeout=1800)
        assert running.process.returncode == 0, running.stdout + running.stderr
        (run,) = [r for r in experiment.mlflow_runs() if r.data.params["name"] == design]
        assert run.info.status == "FINISHED"
        found[design] = {name: values(experiment, run.info.run_id, name) for name in run.data.metrics}
    return found


def values(experiment: Experiment, run_id: str, name: str) -> dict[int, float]:
    history: list[Any] = experiment.mlflow().get_metric_history(run_id, name)
    return {point.step: point.value for point in history}


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_has_its_curves(design: str, curves: dict[str, dict[str, dict[int, float]]]) -> None:
    found = curves[design]
    for name in COMMON:
        assert set(found.get(name, ())) == set(range(1, STEPS + 1)), (name, found.get(name))
    trained_on = {step for step, share in found["masked/tokens"].items() if share < 1}
    for name in OF_AN_UPDATE:
        assert set(found.get(name, ())) == trained_on, (name, found.get(name), trained_on)
    if design == "signal_reshaping":
        assert "turn_scores/weighted" in curves[design]
    if design == "swe_grep":
        assert "policy/sequence_ratio" in curves[design]
        assert "rollout/exit_malformed" in curves[design]
    assert any(name.startswith("kept/") for name in found) is (design == "colgrep")
    if design == "codescout":
        assert {"reward/file_f", "reward/module_f", "reward/entity_f"} <= curves[design].keys()


def test_the_names_are_the_same_for_all(curves: dict[str, dict[str, dict[int, float]]]) -> None:
    names = {
        design: {name for name in found if not name.startswith((*OWN, "policy/", "warm_start/", "data/", "seconds/"))}
        for design, found in curves.items()
    }
    assert all(found == names["v3"] for found in names.values()), {
        design: sorted(found ^ names["v3"]) for design, found in names.items()
    }
