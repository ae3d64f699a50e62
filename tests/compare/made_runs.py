"""Finished runs with made-up results, as records and in a real MLflow store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from codegrep.compare.runs import IssueRow, RunRecord
from codegrep.config import TrackingConfig
from codegrep.tracking import store, sweep
from codegrep.tracking.run import Tracker

REPOSITORIES = ("org/a", "org/b", "org/c", "org/d", "org/e", "org/f", "org/g")
PER_REPOSITORY = 6
STEPS = 12
REWARDS = {"v1": "designs.v1", "v2": "designs.v2", "v3": "designs.v3"}


def params(design: str, seed: int, **more: str) -> dict[str, str]:
    return {
        "name": design,
        "seed": str(seed),
        "outputs": f"/somewhere/{design}",
        "reward.name": design,
        "reward.function": REWARDS.get(design, "designs.v3"),
        "reward.params": "{}",
        "train.grpo.prompts_per_step": "2",
        "train.grpo.group_size": "4",
        "train.workers": "1",
        "train.cpus_per_worker": "2.0",
        "train.use_gpu": "false",
        **more,
    }


def rows(design: str, seed: int, quality: float) -> list[dict[str, object]]:
    """Held-out results: `quality` is the share of issues that the trained model solves; the issues are the same for
    all, the seed decides which are solved.
    """
    draw = np.random.default_rng([seed, *design.encode()])
    table: list[dict[str, object]] = []
    for repository in REPOSITORIES:
        for number in range(PER_REPOSITORY):
            name = f"{repository.replace('/', '__')}-{number}"
            solved = float(draw.random() < quality)
            for retriever, f05 in (("trained", solved), ("bm25_no_tests_top1", float(number % 3 == 0))):
                table.append(
                    {
                        "retriever": retriever,
                        "instance_id": name,
                        "repo": repository,
                        "f05": f05,
                        "f05_top1": f05,
                        "precision": f05,
                        "recall": f05,
                        "good": f05,
                        "hit": f05,
                        "files": 1,
                        "answer": "a.py",
                        "turns": 2 if retriever == "trained" else None,
                        "calls": 5 if retriever == "trained" else None,
                        "generated_tokens": 200 if retriever == "trained" else None,
                        "seconds_per_issue": 0.5,
                    }
                )
    return table


def curve(design: str, seed: int, steps: int = STEPS) -> list[dict[str, float]]:
    draw = np.random.default_rng([seed, *design.encode()])
    return [
        {
            "step": float(step),
            "reward/total": 0.1 + 0.02 * step + 0.03 * draw.random(),
            "rollout/f05": 0.1 + 0.03 * step * draw.random(),
            "policy/kl": 0.002 * step * draw.random(),
            "rollout/tool_turns": 3 - 0.05 * step + 0.1 * draw.random(),
            "completions/generated": 300 + 10 * step + 20 * draw.random(),
            "completions/clipped_ratio": 0.05 * draw.random(),
            "optim/grad_norm": 0.4 + 0.2 * draw.random(),
            "optim/tokens": 1000.0,
            "group/drawn": 2.0,
            "completions/sampled": 2400.0,
            "errors/infrastructure": 0.0,
            "errors/parse": 0.1,
            "rollout/exit_answer": 0.9,
            "seconds/step": 10.0,
        }
        for step in range(1, steps + 1)
    ]


def record(design: str, seed: int, quality: float, **more: str) -> RunRecord:
    return RunRecord(
        run_id=f"{design}{seed}".ljust(32, "0"),
        name=f"{design}-seed{seed}",
        status="FINISHED",
        params=params(design, seed, **more),
        curves=curve(design, seed),
        rows=[
            IssueRow(
                str(row["retriever"]),
                str(row["instance_id"]),
                str(row["repo"]),
                {k: v for k, v in row.items() if v is None or isinstance(v, int | float)},
            )
            for row in rows(design, seed, quality)
        ],
    )


def write_sweep(outputs: Path, sweep_id: str, designs: dict[str, float], seeds: Sequence[int]) -> Tracker:
    """A finished sweep in the store under `outputs`: designs by name with their quality, and seeds. Its parent."""
    config = TrackingConfig(name="sqlite", uri="", experiment="codegrep")
    parent = sweep.open_sweep(config, outputs, sweep_id, name=f"{','.join(designs)} x {len(seeds)} seeds")
    for design, quality in designs.items():
        for seed in seeds:
            write_run(outputs, design, seed, quality, sweep_id, parent.run_id).finish("FINISHED")
    parent.finish("FINISHED")
    return parent


def write_run(
    outputs: Path,
    design: str,
    seed: int,
    quality: float,
    sweep_id: str = "",
    parent: str = "",
    trains: bool = True,
    uri: str = "",
) -> Tracker:
    config = TrackingConfig("sqlite", uri, "codegrep", sweep=sweep_id, parent_run=parent)
    uri, location = store.resolve(config, outputs)
    folder = outputs / "runs" / f"{design}-seed{seed}-0123abcd"
    tags = {**sweep.child_tags(config), "codegrep.run_folder": folder.name}
    tracker = Tracker.start(
        uri, config.experiment, f"{design}-seed{seed}", tags, folder / "mlflow_run_id", artifact_location=location
    )
    tracker.params(params(design, seed))
    for row in curve(design, seed) if trains else ():
        tracker.metrics({k: v for k, v in row.items() if k != "step"}, step=int(row["step"]))
    tracker.table(rows(design, seed, quality), "evaluation/per_issue.json")
    return tracker


def results(folder: Path) -> dict[str, object]:
    made: dict[str, object] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return made
