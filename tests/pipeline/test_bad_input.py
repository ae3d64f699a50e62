"""What is wrong with data, folders, models and machines: one line for a person, and good rows go on."""

from __future__ import annotations

import fcntl
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from codegrep.__main__ import main
from codegrep.engines.models import provide
from codegrep.tracking.store import connect
from tests.pipeline.experiments import Experiment, make_repository
from tests.sandbox.trees import run_git

Row = dict[str, Any]
PREPARE = ("+experiment=v3", "stages=[prepare]", "sandbox.min_free_gib=0.1")


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of standard error."""
        assert self.code == 2, (self.code, self.out, self.err)
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("codegrep: ")
        return lines[0]


def ended(code: int, out: str, err: str) -> Ended:
    """Without what holds of this machine (a CPU without bfloat16), which is no part of a mistake."""
    lines = [line for line in err.splitlines(keepends=True) if not line.startswith("codegrep: note:")]
    return Ended(code, out, "".join(lines))


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two good repositories, and a bundle that is none."""
    folder = tmp_path_factory.mktemp("clones")
    make_repository(folder / "acme__shop", ("invoice", "parser", "cache"))
    make_repository(folder / "other__store", ("router", "matrix"))
    (folder / "acme__broken.bundle").write_bytes(b"# v2 git bundle\nthis is none\n")
    return folder


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outputs: Path) -> Callable[..., Ended]:
    """The command line in this process; none of these mistakes gets as far as Ray."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["codegrep", f"outputs={outputs}", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        said = capsys.readouterr()
        assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
        return ended(code, said.out, said.err)

    return run


def rows_of(clones: Path, label: str) -> list[Row]:
    """Every fix commit of a repository in the form of SWE-bench."""
    repository = clones / label.replace("/", "__")
    commits = run_git("rev-list", "--reverse", "--no-merges", "HEAD", cwd=repository).split()
    return [
        {
            "instance_id": f"{label.replace('/', '__')}-{number}",
            "repo": label,
            "base_commit": base,
            "problem_statement": run_git("log", "-1", "--format=%B", commit, cwd=repository),
            "patch": run_git("diff", base, commit, cwd=repository),
        }
        for number, (base, commit) in enumerate(itertools.pairwise(commits))
    ]


def mlflow_run(outputs: Path, name: str) -> Any:
    client = connect(f"sqlite:///{outputs}/mlflow.db")
    runs = client.search_runs([found.experiment_id for found in client.search_experiments()])
    (run,) = [run for run in runs if run.info.run_name == f"{name}-seed0"]
    return run


def swe_bench(folder: Path, rows: list[Row | str], clones: Path, *more: str) -> tuple[str, ...]:
    """Arguments for a data set in SWE-bench's form; a string is written as it is."""
    path = folder / "instances.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
    source = "data.sources.swe_bench.args"
    held_out = "data.split.held_out=[other/store]"
    return (*PREPARE, "data=swe_bench", f"{source}.path={path}", f"{source}.repositories={clones}", held_out, *more)


def test_bad_rows_are_counted_and_listed_and_good_ones_go_on(
    clones: Path, tmp_path: Path, outputs: Path, command: Callable[..., Ended]
) -> None:
    good = [*rows_of(clones, "acme/shop"), *rows_of(clones, "other/store")]
    lost = {**good[0], "instance_id": "lost-commit", "base_commit": "1" * 40}
    empty = {**good[0], "instance_id": "empty-statement", "problem_statement": "  \n"}
    moved = {**good[0], "instance_id": "lost-file"}
    moved["patch"] = moved["patch"].replace("shop/invoice", "shop/elsewhere")
    unclonable = {**good[0], "instance_id": "unclonable", "repo": "acme/broken"}
    absent = {**good[0], "instance_id": "absent", "repo": "acme/absent"}
    fieldless = {"instance_id": "fieldless", "repo": "acme/shop"}
    rows: list[Row | str] = [*good, lost, empty, moved, unclonable, absent, fieldless, '{"instance_id": ']
    done = command(*swe_bench(tmp_path, rows, clones, "name=bad_rows"))
    assert (done.code, done.err) == (0, ""), done.err
    assert "3 issues for training, 2 held out" in done.out and "7 rows left out" in done.out
    (dropped,) = outputs.glob("artifacts/prepare-*/dropped.json")
    said = json.loads(dropped.read_text(encoding="utf-8"))
    assert said["counts"] == {
        "missing commit": 1,
        "gold file missing at the base commit": 1,
        "repository cannot be cloned": 1,
        "repository not found": 1,
        "broken row": 3,
    }
    for reason in said["counts"]:
        assert reason in done.out
    listed = {row["where"]: row["reason"] for row in said["rows"]}
    assert len(listed) == 7
    assert "1" * 40 in listed["lost-commit"]
    assert "cannot be cloned" in listed["unclonable"]
    assert sum("instances.jsonl" in where for where in listed) == 3, listed
    kept = (dropped.parent / "issues.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["instance_id"] for line in kept} == {row["instance_id"] for row in good}


def test_no_row_left_is_one_line(clones: Path, tmp_path: Path, command: Callable[..., Ended]) -> None:
    row = rows_of(clones, "acme/shop")[0]
    line = command(*swe_bench(tmp_path, [{**row, "problem_statement": ""}], clones)).line
    assert "instances.jsonl" in line and "statement" in line
    line = command(*swe_bench(tmp_path, [{**row, "repo": "acme/broken"}], clones)).line
    assert "no usable issue is left" in line and "repository cannot be cloned" in line


def test_nothing_to_train_on_is_said_before_anything_is_made(
    clones: Path, tmp_path: Path, command: Callable[..., Ended]
) -> None:
    rows: list[Row | str] = [*rows_of(clones, "acme/shop")]
    everything = ("data.split.by=repository", "data.split.held_out=[acme/shop]")
    line = command(*swe_bench(tmp_path, rows, clones, *everything, "stages=[prepare,warm_start]")).line
    assert "no issue is left for training" in line and "data.split.held_out" in line


def test_a_leak_between_splits_stops_the_run(
    clones: Path, tmp_path: Path, outputs: Path, command: Callable[..., Ended]
) -> None:
    rows = [*rows_of(clones, "acme/shop"), *rows_of(clones, "other/store")]
    own = rows[-1]["problem_statement"]
    rows[-1]["problem_statement"] = rows[0]["problem_statement"]
    line = command(*swe_bench(tmp_path, rows, clones, "name=leaky")).line
    assert "leak between splits" in line and rows[-1]["instance_id"] in line and rows[0]["instance_id"] in line
    assert mlflow_run(outputs, "leaky").info.status == "FAILED"
    assert mlflow_run(outputs, "leaky").data.tags["error"] in line
    # The same command, once the data are mended, ends the same MLflow run well, without the old error.
    rows[-1]["problem_statement"] = own
    assert command(*swe_bench(tmp_path, rows, clones, "name=leaky")).code == 0
    assert mlflow_run(outputs, "leaky").info.status == "FINISHED"
    assert mlflow_run(outputs, "leaky").data.tags["error"] == ""


def test_too_little_disk(command: Callable[..., Ended]) -> None:
    line = command("+experiment=v3", "sandbox.min_free_gib=100000").line
    assert "GiB are free" in line and "sandbox.min_free_gib" in line


def test_outputs_that_cannot_be_written(tmp_path: Path, command: Callable[..., Ended]) -> None:
    (tmp_path / "file").touch()
    assert "outputs=" in command("+experiment=v3", f"outputs={tmp_path}/file/outputs").line


@pytest.mark.parametrize(
    ("path", "words"),
    [("no/such/folder", "does not exist"), ("provided:nanoo", "provided:nano"), ("whole", "has no tokenizer")],
)
def test_a_model_that_cannot_be_used_stops_the_run_at_once(
    path: str, words: str, tmp_path: Path, outputs: Path, command: Callable[..., Ended]
) -> None:
    if path == "whole":
        shutil.copytree(provide("provided:nano", tmp_path / "models"), tmp_path / path)
        for file in (tmp_path / path).glob("tokenizer*"):
            file.unlink()
        path = str(tmp_path / path)
    before = sorted(outputs.iterdir())
    line = command("+experiment=v3", "sandbox.min_free_gib=0.1", f"model.path={path}").line
    assert words in line
    assert sorted(outputs.iterdir()) == before


def test_two_processes_cannot_be_the_same_run(
    clones: Path, tmp_path: Path, outputs: Path, command: Callable[..., Ended]
) -> None:
    rows: list[Row | str] = [*rows_of(clones, "acme/shop"), *rows_of(clones, "other/store")]
    arguments = swe_bench(tmp_path, rows, clones, "name=locked")
    assert command(*arguments).code == 0
    (lock,) = outputs.glob("runs/locked-*/lock")
    with lock.open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert "another process" in command(*arguments).line
        assert command(*arguments, "seed=1").code == 0
    assert command(*arguments).code == 0


def test_a_tracking_server_that_is_away(command: Callable[..., Ended]) -> None:
    line = command(*PREPARE, "tracking=server", "tracking.uri=http://someone:secret@127.0.0.1:9", "name=away").line
    assert "MLflow cannot be opened" in line and "tracking.uri" in line and "secret" not in line


@pytest.mark.slow
def test_a_teacher_that_makes_nothing(experiment: Experiment) -> None:
    """The prompt alone is longer than the context. This far in, Ray is running, and must be gone afterwards."""
    done = experiment.run("model.context=64", "stages=[prepare,warm_start]")
    line = Ended(done.process.returncode, done.stdout, done.stderr).line
    assert "the teacher made no trajectory" in line and "context_limit" in line
    assert done.gone(20) == {}
    (run,) = experiment.mlflow_runs()
    assert run.info.status == "FAILED" and "the teacher made no trajectory" in run.data.tags["error"]


@pytest.mark.slow
def test_weights_that_do_not_load_are_one_line_from_a_worker(experiment: Experiment) -> None:
    model = experiment.folder / "model"
    shutil.copytree(provide("provided:nano", experiment.folder / "models"), model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] += 1
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    done = experiment.run(
        f"model.path={model}",
        "stages=[prepare,warm_start,train,evaluate]",
        "train.warm_start.enabled=false",
        "train.grpo.enabled=false",
        "evaluate.models=[base]",
        "evaluate.retrievers=[]",
    )
    line = Ended(done.process.returncode, done.stdout, done.stderr).line
    assert "lack" in line and str(model) in line
    assert done.gone(20) == {}


@pytest.mark.slow
def test_a_cluster_that_does_not_answer(experiment: Experiment) -> None:
    done = experiment.run("cluster=address", "cluster.address=127.0.0.1:9", "cluster.num_cpus=null")
    line = Ended(done.process.returncode, done.stdout, done.stderr).line
    assert "Ray cannot be reached at 127.0.0.1:9" in line and "cluster=local" in line and "RAY_AUTH_TOKEN_PATH" in line


def test_git_is_needed(clones: Path, tmp_path: Path) -> None:
    """A PATH without git, in a process of its own."""
    rows: list[Row | str] = [*rows_of(clones, "acme/shop"), *rows_of(clones, "other/store")]
    command = [sys.executable, "-m", "codegrep", f"outputs={tmp_path}/outputs", *swe_bench(tmp_path, rows, clones)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, env={"PATH": "/nowhere", "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=300
    )
    assert "git" in ended(done.returncode, done.stdout, done.stderr).line


def test_a_submitted_job_says_which_login_is_missing_before_it_asks_mlflow(
    command: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEGREP_REQUIRED_VARIABLES", "MLFLOW_TRACKING_PASSWORD")
    monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD", raising=False)
    server = ("tracking=server", "tracking.uri=http://127.0.0.1:9", "tracking.start_patience_seconds=0")
    assert "MLFLOW_TRACKING_PASSWORD is not set on the cluster" in command(*PREPARE, *server).line
