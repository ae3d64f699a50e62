"""A whole run whose agent has the tool `search` alone, from the teacher to the evaluation, and the replay of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codegrep.cli import COMMANDS, run
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rollout.store import read_rollouts
from tests.pipeline.experiments import Experiment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_run_with_search_alone(experiment: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    done = experiment.run("tools=search", "evaluate.latency_issues=0", timeout=1500)
    assert done.process.returncode == 0, done.stdout + done.stderr
    artifacts = {path.name.rpartition("-")[0]: path for path in (experiment.outputs / "artifacts").iterdir()}
    scripted = read_rollouts(artifacts["demonstrations"] / "rollouts")
    assert scripted and {r.exit_cause for r in scripted} == {ExitCause.ANSWER}
    assert {(call.name, call.status) for r in scripted for turn in r.turns for call in turn.calls} == {("search", "ok")}
    assert sum(bool(r.answer) for r in scripted) > len(scripted) / 2  # the title leads to the file
    sampled = read_rollouts(artifacts["train"] / "rollouts")
    assert sampled and ExitCause.INFRASTRUCTURE not in {r.exit_cause for r in sampled}
    rows = json.loads((artifacts["evaluate"] / "per_issue.json").read_text(encoding="utf-8"))
    assert sum(row["f05"] for row in rows if row["retriever"] == "first_row") > 0
    assert list((experiment.outputs / "sandbox" / "index").glob("*/*/*.arrow"))
    assert _replayed(artifacts["train"], capsys)


def _replayed(folder: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    code = run(COMMANDS["replay"], [str(folder), "--design", "v3"])
    return code == 0 and "v3" in capsys.readouterr().out
