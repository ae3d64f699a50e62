"""The scripts of examples/ run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from codegrep.rollout.store import write_rollouts
from tests.compare.made_runs import write_sweep
from tests.training.made_rollouts import issues, lost

ROOT = Path(__file__).parents[1]


def example(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "PYTHONPATH": str(ROOT), "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_judging_answers() -> None:
    printed = example("judge_rollout")
    assert printed.count("advantage") == 16
    assert "reward  0.50" in printed.partition("v2")[0]  # v1 halves the reward of eight calls a turn


def test_running_an_agent_on_a_repository(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    (tmp_path / "shop.py").write_text("class Basket:\n    pass\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "A shop"]):
        subprocess.run([*git, *command], check=True)
    printed = example("run_agent", str(tmp_path), "Basket has no total", "provided:nano")
    assert printed.splitlines()[-1].endswith(": no file")  # the weights are random


def test_reading_rollouts_with_pandas(tmp_path: Path) -> None:
    write_rollouts(tmp_path, [lost(issues(1)[0])])
    assert "infrastructure" in example("read_rollouts", str(tmp_path))


def test_the_notebook_reads_a_run_and_a_sweep(tmp_path: Path) -> None:
    write_sweep(tmp_path, "s1", {"v1": 0.2, "v3": 0.9}, (0, 1))
    notebook = nbformat.read(ROOT / "examples" / "read_a_run.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "kept without outputs"
    for cell in notebook.cells:
        cell.source = cell.source.replace('"../outputs"', repr(str(tmp_path)))
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    assert "bm25_no_tests_top1" in "\n".join(shown) and shown[-1].splitlines()[0].startswith("seed")


def test_searching_a_repository(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("class Basket:\n    def total(self):\n        return 0\n", encoding="utf-8")
    printed = example("search_repository", str(tmp_path), "The total of shop.py is wrong")
    assert printed.startswith("shop.py:") and "the text gives its file name" in printed
