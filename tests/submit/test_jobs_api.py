"""A job through Ray's Jobs API on a real cluster with token authentication: followed, failed, stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.experiments import SMALL, make_repository
from tests.runtime.raylets import Raylets, raylets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raylets]:
    with raylets([2], tmp_path_factory.mktemp("cluster"), dashboard=True) as made:
        yield made


@pytest.fixture
def arguments(cluster: Raylets, tmp_path: Path) -> list[str]:
    repository = make_repository(tmp_path / "repositories" / "acme__shop")
    return [
        *SMALL,
        f"data.sources.git_history.args.path={repository}",
        f"outputs={tmp_path / 'outputs'}",
        "stages=[prepare]",
        "cluster=ray_job",
        f"cluster.submit.address=http://{cluster.dashboard.removeprefix('http://')}",
    ]


def submit(cluster: Raylets, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **cluster.environment, **changed}
    return subprocess.run(
        [sys.executable, "-m", "codegrep", "submit", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_a_job_is_followed_to_its_end(cluster: Raylets, arguments: list[str], tmp_path: Path) -> None:
    done = submit(cluster, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "prepare" in done.stdout and "submitted codegrep-v3-" in done.stderr
    assert list((tmp_path / "outputs").glob("artifacts/prepare-*/artifact.json"))
    name = next(word for word in done.stderr.split() if word.startswith("codegrep-v3-")).rstrip(";")
    status = submit(cluster, "--status", name, *arguments)
    assert status.stdout.startswith("SUCCEEDED, exit code 0")


def test_a_failure_is_a_failure(cluster: Raylets, arguments: list[str]) -> None:
    done = submit(cluster, *arguments, "data.sources.git_history.args.path=/nowhere")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "codegrep: " in done.stdout and "/nowhere" in done.stdout, "the job's own words are in its log"
    assert "FAILED" in done.stderr


def test_a_wrong_token_is_said(cluster: Raylets, arguments: list[str]) -> None:
    done = submit(cluster, *arguments, RAY_AUTH_TOKEN="0" * 32)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert "RAY_AUTH_TOKEN" in line


def test_a_missing_secret_is_said_by_the_job(cluster: Raylets, arguments: list[str]) -> None:
    stages = [a if not a.startswith("stages") else "stages=[prepare,warm_start]" for a in arguments]
    done = submit(cluster, *stages, "+cluster.submit.secrets.SOME_SERVICE_TOKEN=''")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "SOME_SERVICE_TOKEN is not set on the cluster" in done.stdout


def test_a_job_is_stopped(cluster: Raylets, arguments: list[str]) -> None:
    long = [a for a in arguments if not a.startswith("stages")]
    detached = submit(cluster, *long, "--detach")
    assert detached.returncode == 0, detached.stderr
    name = detached.stdout.strip()
    stopped = submit(cluster, "--stop", name, *arguments)
    assert stopped.returncode == 0 and stopped.stdout.startswith("STOPPED"), stopped.stdout + stopped.stderr
    followed = submit(cluster, "--follow", name, *arguments)
    assert followed.returncode not in (0, 75)
