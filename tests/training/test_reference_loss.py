"""Loss and gradient of the trainer against the plain reference, to 1e-5, for every design and every option."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from codegrep.rewards import designs
from codegrep.rewards.advantage import efficiency, mean_calls
from tests.training.made_rollouts import issues
from tests.training.reference import Recipe, close, policy, update
from tests.training.varied_rollouts import EOS, GRAM, HANDLING, MAX_CALLS, Varied, by_calls, trainer_for

ROOT = Path(__file__).parents[2]
GOVERNED = {"handling": HANDLING, "max_calls": MAX_CALLS, "gram": GRAM}
V3 = Recipe(designs.v3, efficiency)
RESHAPED = Recipe(
    designs.v3, kl=0.01, clip=(0.2, 0.28), scorer=by_calls, masked_in_group=True, lost_in_group=True, **GOVERNED
)
OVERLONG = {"handling": {"max_tokens": "full_mask", "context_limit": "full_mask"}, "masked_in_group": False}
SWE_GREP = Recipe(
    designs.swe_grep,
    mean_calls,
    scale="none",
    loo=True,
    kl=0.0,
    loss_type="dr_grpo",
    correction=(0.5, 2.0),
    **OVERLONG,
)
# The designs of the papers; then each option by itself and some together.
RECIPES: dict[str, Recipe] = {
    "v1": Recipe(designs.v1),
    "v2": Recipe(designs.v2, efficiency),
    "v3": V3,
    "swe_grep": SWE_GREP,
    "colgrep": Recipe(designs.colgrep, scale="none", kl=0.0, loss_type="dr_grpo", drop_dead=True),
    "codescout": Recipe(designs.codescout, scale="none", kl=0.0, clip=(3e-4, 4e-4), sequence_ratio=True),
    "signal_reshaping": RESHAPED,
    "dapo": Recipe(designs.v3, kl=0.0, clip=(0.2, 0.28), loss_type="dapo", drop_dead=True),
    "gspo": Recipe(designs.v3, kl=0.0, clip=(3e-4, 4e-4), sequence_ratio=True),
    "rloo": Recipe(designs.v3, scale="none", loo=True),
    "rloo_left_out": Recipe(designs.v3, loo=True, **{**GOVERNED, "masked_in_group": False}),
    "batch_scale": replace(V3, scale="batch"),
    "bnpo": replace(V3, loss_type="bnpo"),
    "dapo_kl_k2": replace(V3, loss_type="dapo", kl=0.5, kl_estimator="k2"),
    "grpo_kl_k2": replace(V3, kl=0.5, kl_estimator="k2"),
    "dr_grpo_kl_k2": replace(V3, loss_type="dr_grpo", kl=0.5, kl_estimator="k2"),
    "kl_corrected": replace(V3, kl=0.5, kl_estimator="k3_corrected"),
    "left_out": replace(RESHAPED, masked_in_group=False, lost_in_group=False),
    "left_out_dapo": replace(RESHAPED, masked_in_group=False, lost_in_group=False, loss_type="dapo"),
    "governed_in_loss": replace(RESHAPED, in_loss=True),
    "governed_dr_grpo_in_loss": replace(RESHAPED, loss_type="dr_grpo", in_loss=True),
    "process_all": replace(V3, scorer=by_calls, only_answered=False),
    "process_sequence": replace(V3, scorer=by_calls, sequence_ratio=True),
    "overlong": replace(V3, mask_truncated=frozenset({EOS, 0})),
    "overlong_dapo": replace(V3, mask_truncated=frozenset({EOS, 0}), loss_type="dapo"),
    "correction": replace(V3, correction=(0.0, float("inf"))),
}


def compare(name: str, nano: Path, folder: Path, collector: Varied, **changes: Any) -> tuple[Any, Any]:
    """One step of the trainer and one of the reference, held against each other."""
    recipe = RECIPES[name]
    trainer, captured = trainer_for(recipe, nano, folder, collector, **changes)
    trainer.train()
    loss, gradients, adapter = captured.steps[0]
    wanted = update(policy(nano, adapter), captured.rollouts[0], 8, recipe)
    assert loss == pytest.approx(wanted.loss, abs=1e-5)
    _, largest = close(gradients, wanted.gradients)
    assert largest > 1e-3  # 1e-5 means something
    assert set(gradients) == set(wanted.gradients)
    assert trainer.own_metrics["policy/kl"] == pytest.approx(wanted.kl, rel=1e-4)
    return trainer, wanted


@pytest.mark.parametrize("name", RECIPES)
def test_one_step_equals_the_reference(name: str, nano: Path, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    changes = {"prompts_per_microbatch": 2} if name == "bnpo" else {}  # bnpo divides by the microbatch's tokens
    _, wanted = compare(name, nano, tmp_path, Varied(same=recipe.drop_dead), **changes)
    if recipe.handling or recipe.drop_dead or recipe.mask_truncated:
        assert wanted.masked > 10  # there was something to mask
    if recipe.scorer:
        weighted = [i for i, weights in enumerate(wanted.weights) if (weights != 1).any()]
        assert {np.sign(wanted.advantages[i]) for i in weighted} == {-1, 1}  # turn weights at work, both signs


@pytest.mark.parametrize("name", ["signal_reshaping", "swe_grep", "dapo"])
def test_without_fast_scoring_too(name: str, nano: Path, tmp_path: Path) -> None:
    compare(name, nano, tmp_path, Varied(same=name == "dapo"), fast=False)


@pytest.mark.parametrize("name", ["v3", "gspo", "signal_reshaping", "kl_corrected", "correction"])
def test_the_second_update_of_a_batch_clips_against_the_first(name: str, nano: Path, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    trainer, captured = trainer_for(recipe, nano, tmp_path, Varied(), steps=2, updates_per_batch=2)
    trainer.train()
    (_, _, before), (loss, gradients, after) = captured.steps
    assert captured.rollouts[0] == captured.rollouts[1]
    first = update(policy(nano, before), captured.rollouts[0], 8, recipe)
    second = update(policy(nano, after), captured.rollouts[1], 8, recipe, old=first.old)
    assert second.clipped > 0 and first.clipped == 0
    assert loss == pytest.approx(second.loss, abs=1e-5)
    close(gradients, second.gradients)


def run_pair(folder: Path, nano: Path, names: list[str]) -> list[dict[str, Any]]:
    """The same recipes in two processes that train one model; what each of them saw."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pair = []
    for rank in range(2):
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "ACCELERATE_USE_CPU": "true",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "tests.training.two_workers", str(nano), str(folder), *names]
        with (folder / f"log-{rank}").open("wb") as log:
            pair.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log))
    try:
        for rank, process in enumerate(pair):
            assert process.wait(500) == 0, (folder / f"log-{rank}").read_text()[-3000:]
    finally:
        for process in pair:
            process.kill()
            process.wait()
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(2)]


TWO = [
    "v3",
    "signal_reshaping",
    "left_out_dapo",
    "governed_in_loss",
    "swe_grep",
    "batch_scale",
    "dapo_kl_k2",
    "overlong",
]


def test_two_workers_equal_the_reference_over_both(nano: Path, tmp_path: Path) -> None:
    first, second = run_pair(tmp_path, nano, TWO)
    every = {issue.instance_id: issue for issue in issues(4)}
    for name in TWO:
        shares = (first[name], second[name])
        ids = [share["issues"] for share in shares]
        assert not set(ids[0]) & set(ids[1])
        made = [Varied().one(every[i], place, 0) for share in ids for i in share for place in range(8)]
        tokens = [
            sum(map(len, (r.completion_ids for r in made[:16]))),
            sum(map(len, (r.completion_ids for r in made[16:]))),
        ]
        assert tokens[0] != tokens[1]  # the workers' paddings differ
        wanted = update(policy(nano, first[name]["adapter"]), made, 8, RECIPES[name])
        assert (first[name]["loss"] + second[name]["loss"]) / 2 == pytest.approx(wanted.loss, abs=1e-5)
        for share in shares:  # both hold the same gradient
            close(share["gradients"], wanted.gradients)
        assert first[name]["metrics"] == second[name]["metrics"]
        assert first[name]["metrics"]["policy/kl"] == pytest.approx(wanted.kl, rel=1e-4)
        gaps = [share["largest_gap"] for share in shares]
        assert gaps[0] != gaps[1] and first[name]["metrics"]["policy/logprob_gap_max"] == max(gaps)


def test_two_workers_fill_a_dropped_group_with_one_issue_that_neither_has(nano: Path, tmp_path: Path) -> None:
    from tests.training.two_workers import ALIKE, REFILLED, SPARE

    shares = [share[REFILLED] for share in run_pair(tmp_path, nano, [REFILLED])]
    every = {issue.instance_id: issue for issue in issues(4 + SPARE)}
    ids = [share["issues"] for share in shares]
    trained, asked = [*ids[0], *ids[1]], shares[0]["asked"]
    assert "o__r-0" in asked and "o__r-0" not in trained and len(set(trained)) == 4
    assert len(set(trained) - set(asked)) == 1
    made = [ALIKE.one(every[i], place, 0) for i in trained for place in range(8)]
    wanted = update(policy(nano, shares[0]["adapter"]), made, 8, RECIPES["dapo"])
    assert (shares[0]["loss"] + shares[1]["loss"]) / 2 == pytest.approx(wanted.loss, abs=1e-5)
    for share in shares:
        close(share["gradients"], wanted.gradients)
        assert (share["metrics"]["group/drawn"], share["metrics"]["group/refilled"]) == (5, 1)


def test_the_reference_imports_nothing_of_trl() -> None:
    spec = importlib.util.find_spec("tests.training.reference")
    assert spec and spec.origin
    source = Path(spec.origin).read_text(encoding="utf-8")
    for room in ("trl", "codegrep.training.grpo", "score_batch", "loss_terms", "turn_scores", "governance import"):
        assert f"import {room}" not in source and f"from {room}" not in source
