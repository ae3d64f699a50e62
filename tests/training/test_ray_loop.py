from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray

from codegrep.errors import DataError
from codegrep.issues.issue import Issue
from codegrep.rollout.record import Rollout
from codegrep.training.loops import LivePolicy
from codegrep.training.lora import adapter_sha256
from codegrep.training.ray_loop import run_training
from tests.training.made_rollouts import Made
from tests.training.ray_jobs import RAY, SPECS, STEPS, OpenShares, grpo_spec, read_log, warm_start_spec

pytestmark = pytest.mark.slow
Drivers = Callable[[str, Path, float], subprocess.Popen[bytes]]
REPO = Path(__file__).parents[2]
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO), "RAY_TRAIN_METRICS_ENABLED": "0"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ.update({k: ENV[k] for k in ("OMP_NUM_THREADS", "PYTHONPATH")})
    ray.init(**RAY)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def unbroken(cluster: None, nano: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checksum of the adapter that each loop ends with when nothing happens to it."""
    folder = tmp_path_factory.mktemp("unbroken")
    made = {}
    for kind, spec in SPECS.items():
        result = run_training(spec(nano, folder / f"{kind}.jsonl"), folder, kind)
        assert result.step == result.max_steps == STEPS and not result.stopped
        assert [entry["step"] for entry in read_log(folder / f"{kind}.jsonl")] == list(range(1, STEPS + 1))
        assert any(name.startswith(("warm_start/", "optim/")) for name in result.metrics)
        made[kind] = adapter_sha256(result.adapter)
    return made


@pytest.fixture
def drivers(nano: Path, tmp_path: Path) -> Iterator[Drivers]:
    """Starts drivers of their own, each with its own Ray; none outlives the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(kind: str, log: Path, seconds: float) -> subprocess.Popen[bytes]:
        arguments = [kind, str(nano), str(tmp_path / "storage"), str(log), str(seconds)]
        with (tmp_path / "stderr").open("wb") as stderr:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.training.ray_jobs", *arguments],
                cwd=REPO,
                env=ENV,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        started.append(driver)
        return driver

    yield start
    for driver in started:
        driver.kill()
        driver.wait()


@pytest.mark.parametrize("kind", SPECS)
def test_a_killed_worker_goes_on_from_its_last_checkpoint(
    kind: str, unbroken: dict[str, str], nano: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"

    def kill() -> None:
        _wait(lambda: len(read_log(log)) >= 3)
        os.kill(read_log(log)[-1]["pid"], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    result = run_training(SPECS[kind](nano, log, 0.3), tmp_path, kind)
    killer.join(10)
    entries = read_log(log)
    assert len({entry["pid"] for entry in entries}) == 2
    assert result.step == STEPS and adapter_sha256(result.adapter) == unbroken[kind]
    assert entries[-1]["step"] == STEPS and len(entries) <= STEPS + 3


@pytest.mark.parametrize("kind", SPECS)
def test_a_killed_driver_goes_on_when_called_again(
    kind: str, unbroken: dict[str, str], nano: Path, tmp_path: Path, drivers: Drivers
) -> None:
    log = tmp_path / "log.jsonl"
    driver = drivers(kind, log, 0.5)
    _wait(lambda: len(read_log(log)) >= 3)
    driver.kill()
    driver.wait()
    first = read_log(log)
    _wait(lambda: not _alive(first[-1]["pid"]))  # the worker does not outlive its driver
    before = len(read_log(log))
    result = run_training(SPECS[kind](nano, log), tmp_path / "storage", kind)
    later = read_log(log)[before:]
    assert later[0]["step"] > 1
    assert result.step == STEPS and adapter_sha256(result.adapter) == unbroken[kind]
    # Called once more, there is nothing left to do.
    entries = len(read_log(log))
    assert run_training(SPECS[kind](nano, log), tmp_path / "storage", kind).step == STEPS
    assert len(read_log(log)) == entries


def test_ctrl_c_stops_in_seconds_and_leaves_nothing(tmp_path: Path, drivers: Drivers) -> None:
    log = tmp_path / "log.jsonl"
    driver = drivers("grpo", log, 1.0)
    _wait(lambda: len(read_log(log)) >= 2)
    start = time.monotonic()
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) != 0
    assert time.monotonic() - start < 60  # some seconds; a busy machine takes longer to end its processes
    _wait(lambda: not _alive(read_log(log)[-1]["pid"]))
    assert "KeyboardInterrupt" in (tmp_path / "stderr").read_text()


@pytest.mark.parametrize("kind", SPECS)
def test_two_workers_train_one_model(kind: str, cluster: None, nano: Path, tmp_path: Path) -> None:
    result = run_training(SPECS[kind](nano, tmp_path / "log.jsonl", workers=2), tmp_path, kind)
    assert result.step == result.max_steps
    assert [entry["step"] for entry in read_log(tmp_path / "log.jsonl")] == list(range(1, result.step + 1))


def test_two_workers_log_what_one_logs(cluster: None, nano: Path, tmp_path: Path) -> None:
    """The first step has one policy; microbatches and workers divide its rollouts in different ways."""
    numbers = []
    for workers in (1, 2):
        log = tmp_path / f"{workers}.jsonl"
        run_training(grpo_spec(nano, log, workers=workers, collector=OpenShares()), tmp_path, f"shares-{workers}")
        numbers.append({k: v for k, v in read_log(log)[0]["numbers"].items() if not k.startswith("seconds/")})
    one, two = numbers
    assert {"policy/kl", "policy/entropy", "rollout/f05", "completions/mean_length", "optim/tokens"} <= one.keys()
    assert two == pytest.approx(one, rel=1e-4, abs=1e-6)


def test_an_error_for_people_arrives_as_it_was(cluster: None, nano: Path, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with pytest.raises(DataError, match="the third issue is odd") as caught:
        run_training(grpo_spec(nano, tmp_path / "log.jsonl", collector=OpenOdd(starts)), tmp_path, "odd")
    assert caught.value.fix == "Leave it out"
    assert starts.read_text() == "start\n"  # a restart would not have helped, so there was none


@dataclass(frozen=True)
class OpenOdd:
    starts: Path

    def __call__(self, policy: LivePolicy) -> Made:
        with self.starts.open("a") as file:
            file.write("start\n")
        return Odd()


class Odd(Made):
    def collect(self, wanted: list[Issue], group_size: int, step: int) -> list[Rollout]:
        raise DataError("the third issue is odd", "Leave it out")


def test_sigint_is_pythons_again_after_a_run(cluster: None, nano: Path, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    run_training(warm_start_spec(nano, tmp_path / "log.jsonl"), tmp_path, "sigint")
    assert signal.getsignal(signal.SIGINT) is before


def _wait(reached, seconds: float = 400) -> None:  # type: ignore[no-untyped-def]
    limit = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.1)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
