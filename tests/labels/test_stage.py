"""The stage `label` through Ray Data, as a command and within an experiment."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from codegrep.labels.command import audit
from codegrep.labels.trajectory import Trajectory, to_arrow
from codegrep.pipeline.mined_targets import labelled
from codegrep.rollout.store import read_rollouts
from tests.labels.test_adapters import MINI
from tests.labels.trajectories import read_of
from tests.pipeline.experiments import Experiment

ROOT = Path(__file__).parents[2]
LONG = "I see the issue now. The cache is filled before the lock is taken, so two callers can meet there. " * 3


def trajectories(count: int) -> list[Trajectory]:
    """Each reads one file; texts of different length, a few rejected."""
    made = []
    for n in range(count):
        text = LONG + "word " * (n % 40) if n % 10 else "This file is unrelated to the issue. " * 10
        made.append(read_of(f"src/f{n % 7}.py", text, f"t{n:04d}", f"owner__name-{n // 2}"))
    return made


def material(folder: Path, count: int, group: int) -> tuple[Path, Path]:
    path = folder / "trajectories.parquet"
    parquet.write_table(to_arrow(trajectories(count)), path, row_group_size=group)
    gold = folder / "instances.jsonl"
    patch = "--- a/src/gold.py\n+++ b/src/gold.py\n@@ -1 +1 @@\n-a\n+b\n"
    about = {"repo": "owner/name", "base_commit": "0" * 40, "problem_statement": "It fails.", "patch": patch}
    gold.write_text("\n".join(json.dumps({"instance_id": f"owner__name-{n}", **about}) for n in range(count // 2)))
    return path, gold


def command(paths: Sequence[Path], gold: Path, outputs: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "codegrep", "label", *map(str, paths), "--instances", str(gold)),
        *("--outputs", str(outputs), "--tokenizer", "words"),
        *("cluster.num_cpus=1", "cluster.object_store_gib=0.1", "data.split.held_out=[]", *more),
    ]


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def artifact(outputs: Path) -> Path:
    (found,) = (outputs / "artifacts").glob("label-*")
    return found


def digests(folder: Path) -> dict[str, str]:
    names = ["samples.parquet", *(f"shards/{p.name}" for p in (folder / "shards").glob("*.parquet"))]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sorted(names)}


def test_the_command_writes_samples_card_sheet_and_metrics(tmp_path: Path) -> None:
    path, gold = material(tmp_path, 60, 20)
    other = tmp_path / "mini.jsonl"
    other.write_text(json.dumps(MINI) + "\n{broken\n")
    poisoned = tmp_path / "poisoned.parquet"
    data = bytearray(path.read_bytes())
    about = parquet.read_metadata(path).row_group(0)
    for column in (about.column(n) for n in range(about.num_columns)):
        data[column.data_page_offset : column.data_page_offset + 12] = b"\0" * 12  # the pages' headers
    poisoned.write_bytes(data)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(path.read_bytes()[:500])
    done = run(command([path, other, poisoned, cut], gold, tmp_path / "out"))
    folder = artifact(tmp_path / "out")
    summary = json.loads((folder / "summary.json").read_text())
    quarantine = json.loads((folder / "quarantine.json").read_text())
    assert {"mini.jsonl line 2", "cut.parquet", "poisoned.parquet row group 0"} <= {one["where"] for one in quarantine}
    samples = parquet.read_table(folder / "samples.parquet").to_pylist()
    assert summary["samples"] == len(samples) == 54, done.stdout  # every tenth is rejected, ids come once
    assert summary["sample_filters"]["duplicate_id"] == 40  # the other row groups of the poisoned copy
    assert summary["files"] == {"surviving": 54, "not_relevant": 6}
    first = samples[0]
    assert first["target_files"] == sorted({"src/gold.py", first["mined"][0]["path"]})
    provenance = first["mined"][0]
    assert provenance["judge"] == "rules" and provenance["evidence"].startswith("I see") and provenance["message"] == 2
    card = (folder / "data_card.md").read_text()
    assert "No model has judged" in card and "Retention" in card and "![Funnel](figures/funnel.png)" in card
    assert "data:image/svg+xml;base64" in (folder / "data_card.html").read_text()
    from codegrep.tracking.store import connect

    client = connect(f"sqlite:///{tmp_path / 'out'}/mlflow.db")
    (recorded,) = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert recorded.data.metrics["label/samples"] == 54 and recorded.data.metrics["label/beta"] == summary["beta"]
    sheet = folder / "spot_check.csv"
    filled = sheet.read_text().replace(",,\r\n", ",RELEVANT,\r\n").replace(",,\n", ",RELEVANT,\n")
    sheet.write_text(filled)
    assert audit([str(sheet)]) == 0


@pytest.mark.slow
def test_a_killed_run_ends_like_one_that_was_not(tmp_path: Path) -> None:
    path, gold = material(tmp_path, 400, 5)
    run(command([path], gold, tmp_path / "whole"))
    interrupted = command([path], gold, tmp_path / "killed")
    process = subprocess.Popen(
        interrupted, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    limit = time.monotonic() + 300
    while True:
        found = list((tmp_path / "killed" / "artifacts").glob("label-*/shards/*.json"))
        if len(found) >= 5:
            break
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    folder = artifact(tmp_path / "killed")
    assert not (folder / "artifact.json").exists()
    before = {p: p.stat().st_mtime_ns for p in found}
    run(interrupted)
    assert digests(artifact(tmp_path / "whole")) == digests(folder)
    assert len(digests(folder)) == 81
    assert {p: p.stat().st_mtime_ns for p in found} == before  # what was done was not done again


@pytest.mark.slow
def test_a_judge_that_fails_is_asked_again_for_those_rows_only(tmp_path: Path) -> None:
    import threading

    from tests.chat_server import Server, said

    path, gold = material(tmp_path, 60, 20)
    ill = {"on": True}

    def answer(number: int, body: dict[str, Any]) -> Any:
        return (500, {}, b"") if ill["on"] and number % 3 == 0 else said("RELEVANT")

    server = Server(answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"judge.params.url=http://127.0.0.1:{server.server_address[1]}/v1"
    more = ("judge=llm", url, "judge.params.model=m", "judge.params.retries=0", "judge.params.backoff=0.01")
    arguments = command([path], gold, tmp_path / "out", *more)
    failed = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert failed.returncode == 2 and "gave no verdict on 20 of 60" in failed.stderr, failed.stderr
    asked = len(server.seen)
    ill["on"] = False
    run(arguments)
    server.shutdown()
    assert (asked, len(server.seen)) == (60, 80)
    assert "It fails." in server.seen[0]["messages"][0]["content"]  # the task, from the trajectory
    assert json.loads((artifact(tmp_path / "out") / "summary.json").read_text())["samples"] == 60


def test_training_issues_take_their_gold_from_samples(tmp_path: Path) -> None:
    from codegrep.issues import Issue

    issues = [Issue(f"i{n}", "o/n", "0" * 40, "text", gold_files=("g.py",)) for n in range(3)]
    path = tmp_path / "targets.json"
    path.write_text(json.dumps({"i0": [["a.py", "g.py"]], "i1": [["g.py"], ["b.py", "g.py"]]}))
    made = labelled(issues, path, keep_unlabelled=True)
    assert [(i.instance_id, i.gold_files) for i in made] == [
        ("i0", ("a.py", "g.py")),
        ("i1", ("g.py",)),
        ("i1@2", ("b.py", "g.py")),
        ("i2", ("g.py",)),
    ]
    assert [i.instance_id for i in labelled(issues, path, keep_unlabelled=False)] == ["i0", "i1", "i1@2"]


@pytest.mark.slow
def test_an_experiment_mines_its_training_issues_and_nothing_of_the_held_out_ones(experiment: Experiment) -> None:
    done = experiment.run("stages=[prepare]")
    assert done.process.returncode == 0, done.stderr
    (prepared,) = (experiment.outputs / "artifacts").glob("prepare-*")
    split = json.loads((prepared / "split.json").read_text())
    issues = {i["instance_id"]: i for i in map(json.loads, (prepared / "issues.jsonl").read_text().splitlines())}
    made = []
    for n, (identity, issue) in enumerate(sorted(issues.items())):
        there = sorted({other["gold_files"][0] for other in issues.values()} - set(issue["gold_files"]))[0]
        for path in (there, "shop/not/at_base.py"):
            made.append(replace(read_of(path, LONG, f"t{n}-{path[-3:]}{len(made)}", identity), repo=issue["repo"]))
    path = experiment.folder / "trajectories.parquet"
    parquet.write_table(to_arrow(made), path)
    done = experiment.run(
        "stages=[prepare,label]", "labels=catm", f"labels.trajectories=[{path}]", "labels.granularity=issue"
    )
    assert done.process.returncode == 0, done.stderr
    folder = artifact(experiment.outputs)
    samples = parquet.read_table(folder / "samples.parquet").to_pylist()
    assert {one["instance_id"] for one in samples} == set(split["train"])
    assert json.loads((folder / "summary.json").read_text())["excluded"] == {
        "held-out issue": 2 * len(split["held_out"])
    }
    targets = json.loads((folder / "training_targets.json").read_text())
    for identity in split["train"]:
        ((files),) = targets[identity]
        assert set(issues[identity]["gold_files"]) < set(files) and "shop/not/at_base.py" not in files
    # The warm start's demonstrations look for the targets, not only for the patch's files.
    done = experiment.run(
        "stages=[prepare,label,warm_start]", "labels=catm", f"labels.trajectories=[{path}]", "labels.granularity=issue"
    )
    assert done.process.returncode == 0, done.stderr
    (shown,) = (experiment.outputs / "artifacts").glob("demonstrations-*")
    rollouts = list(read_rollouts(shown / "rollouts"))
    assert rollouts and all(sorted(targets[r.instance_id][0]) == sorted(r.gold_files) for r in rollouts)
