"""`python -m codegrep compare` on a real MLflow store."""

from __future__ import annotations

import shutil

import pytest

from codegrep.compare.command import main
from codegrep.errors import ConfigError, DataError
from codegrep.tracking import store
from tests.compare.made_runs import STEPS, results, write_run, write_sweep


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    write_sweep(folder, "s1", {"v1": 0.2, "v3": 0.9}, (0, 1))
    return folder


def _artifacts(outputs, run_id):
    client = store.connect(store.sqlite_uri(outputs))
    found = [item.path for item in client.list_artifacts(run_id, "compare")]
    return found + [item.path for item in client.list_artifacts(run_id, "compare/figures")]


def test_a_sweep(outputs, capsys):
    assert main(["--outputs", str(outputs), "s1", "--resamples", "300"]) == 0
    said = capsys.readouterr().out
    assert "Page: " in said and "MLflow: run " in said
    folder = outputs / "compare" / "s1"
    assert {path.name for path in folder.iterdir()} >= {"index.html", "compare.md", "results.json", "figures"}
    made = results(folder)
    assert made["issues"] == 42 and made["repositories"] == 7 and len(made["runs"]) == 4
    assert made["pairs"][0]["a"] == "v1" and made["pairs"][0]["b"] == "v3"
    parent = (outputs / "sweeps" / "s1" / "mlflow_run_id").read_text().strip()
    assert {"compare/index.html", "compare/compare.md", "compare/figures/curves.png"} <= set(
        _artifacts(outputs, parent)
    )
    client = store.connect(store.sqlite_uri(outputs))
    assert client.get_run(parent).info.status == "FINISHED"  # the page changes nothing about the sweep


def test_runs_by_name_share_one_record_in_any_order(outputs, capsys):
    names = ["v1-seed0-0123abcd", "v3-seed0-0123abcd"]
    for order in (names, names[::-1]):
        assert main(["--outputs", str(outputs), *order, "--resamples", "300"]) == 0
    client = store.connect(store.sqlite_uri(outputs))
    experiments = [found.experiment_id for found in client.search_experiments()]
    (kept,) = client.search_runs(experiments, "tags.`codegrep.kind` = 'comparison'")
    assert "compare/index.html" in _artifacts(outputs, kept.info.run_id)
    assert "No claim: one run a design" in capsys.readouterr().out


def test_the_overview(outputs, capsys):
    assert main(["--outputs", str(outputs)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "state", "scale", "date", "held-out", "F0.5"]
    (one,) = [line for line in lines if line.startswith("s1 ")]
    assert "sweep, 4 of 4 finished" in one
    assert any(line.startswith("v3-seed1-0123abcd") and "finished" in line for line in lines)


def test_words_that_name_nothing(outputs, tmp_path):
    with pytest.raises(ConfigError, match="Did you mean v1-seed0-0123abcd"):
        main(["--outputs", str(outputs), "v1-seed0-0123abce"])
    with pytest.raises(ConfigError, match=r"no mlflow\.db"):
        main(["--outputs", str(tmp_path), "s1"])
    assert not list(tmp_path.iterdir())  # looking creates nothing


def test_unfinished_runs_are_left_out_and_named(outputs, tmp_path, capsys):
    shutil.copytree(outputs / "runs", tmp_path / "runs")
    shutil.copyfile(outputs / "mlflow.db", tmp_path / "mlflow.db")
    client = store.connect(store.sqlite_uri(tmp_path))
    run_id = (tmp_path / "runs" / "v3-seed1-0123abcd" / "mlflow_run_id").read_text().strip()
    client.set_terminated(run_id, status="FAILED")
    client.set_tag(run_id, "error", "the disk was full")
    main(["--outputs", str(tmp_path), "s1", "--resamples", "300", "--no-log"])
    text = (tmp_path / "compare" / "s1" / "compare.md").read_text()
    assert "is FAILED: the disk was full" in text
    with pytest.raises(DataError, match="none of the 1 runs has finished"):
        main(["--outputs", str(tmp_path), run_id])


def test_a_run_that_reused_an_adapter_shows_the_curves_of_its_training(tmp_path, outputs):
    shutil.copyfile(outputs / "mlflow.db", tmp_path / "mlflow.db")
    first = write_run(tmp_path, "v9", 0, 0.5)
    first.tags({"artifact.train": "abc123"})
    first.finish("FINISHED")
    second = write_run(tmp_path, "v8", 0, 0.5, trains=False)
    second.tags({"train.artifact": "abc123"})
    second.finish("FINISHED")
    main(["--outputs", str(tmp_path), "v8-seed0-0123abcd", "--resamples", "300", "--no-log"])
    (page,) = (tmp_path / "compare").glob("*/compare.md")
    assert f"v8 seed 0 ({first.run_id[:8]})" in page.read_text() and "![Training curves" in page.read_text()


def test_guard_rails_and_masked_rollouts_reach_the_page(tmp_path, outputs):
    shutil.copyfile(outputs / "mlflow.db", tmp_path / "mlflow.db")
    run = write_run(tmp_path, "v9", 0, 0.5)
    for step in range(1, STEPS + 1):  # the rail is passed in the last three steps
        passed = float(step > STEPS - 3)
        run.metrics({"guard/kl": passed, "masked/repetition": 5.0 * (step == 2), "judge/failed": passed}, step=step)
    run.tags({"guard.kl": "0.31 > 0.3 at step 10", "artifact.train": "abc123"})
    run.finish("FINISHED")
    shares = write_run(tmp_path, "v8", 0, 0.5, trains=False)  # the adapter of v9: what its training met counts here too
    shares.tags({"train.artifact": "abc123"})
    shares.finish("FINISHED")
    for folder in ("v9-seed0-0123abcd", "v8-seed0-0123abcd"):
        main(["--outputs", str(tmp_path), folder, "--resamples", "300", "--no-log", "--to", str(tmp_path / folder)])
        text = (tmp_path / folder / "compare.md").read_text()
        assert "seed 0: guard rail kl: 0.31 > 0.3 at step 10" in text
        lines = [line for line in text.splitlines() if line.startswith("|")]
        assert any("steps beyond the limit of guard rail kl" in line and "25.0 %" in line for line in lines)
        assert any("masked/repetition" in line and "rollouts a training | 5 |" in line for line in lines)
        assert any("judge/failed)" in line and "rollouts a training | 3 |" in line for line in lines)
