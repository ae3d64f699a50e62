"""scripts/seeds.py: means over seeds come before everything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def write_run(folder: Path, trained: list[float]) -> Path:
    rows = []
    for retriever, values in (("trained", trained), ("bm25_no_tests_top1", [0.0] * len(trained))):
        for number, value in enumerate(values):
            rows.append(
                {
                    "retriever": retriever,
                    "instance_id": f"i{number}",
                    "repo": f"o/r{number % 3}",
                    "f05": value,
                    "f05_top1": value,
                    "precision": value,
                    "recall": value,
                    "good": float(value >= 0.8),
                    "files": 1,
                    "turns": 2,
                    "calls": 5,
                    "generated_tokens": None,
                }
            )
    (folder / "report").mkdir(parents=True)
    (folder / "report" / "per_issue.json").write_text(json.dumps(rows))
    return folder


def seeds(*runs: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/seeds.py", *map(str, runs)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # a checkout that is not installed
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_seeds_are_averaged_by_issue(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", [1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    second = write_run(tmp_path / "b", [0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    done = seeds(first, second)
    assert done.returncode == 0, done.stderr
    assert "6 issues of 3 repositories, 2 seeds." in done.stdout
    # Every issue has .5 over the two seeds: no spread is left, though each seed alone has much.
    assert "| trained | 0.500 [0.500, 0.500] | – | 0.500 |" in done.stdout
    assert "+0.500 [+0.500, +0.500]" in done.stdout
    assert "3 repositories are few" in done.stdout


def test_intervals_resample_repositories(tmp_path: Path) -> None:
    # All issues of one of three repositories are solved: drawing repositories again gives 0 to 1.
    done = seeds(write_run(tmp_path / "a", [1.0, 0.0, 0.0] * 8))
    assert "| trained | 0.333 [0.000, 1.000] |" in done.stdout
    assert "+0.333 [+0.000, +1.000]" in done.stdout


def test_a_run_without_report_is_one_line(tmp_path: Path) -> None:
    done = seeds(tmp_path)
    assert done.returncode == 1
    assert "no report yet" in done.stderr
    assert len(done.stderr.splitlines()) == 1
