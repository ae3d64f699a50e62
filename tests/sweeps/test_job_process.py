"""A job's process: its exit code, its log, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from codegrep.sweeps.job_process import JobProcess

ROOT = Path(__file__).parents[2]
REAL = sys.executable  # of the tests, before a fixture changes it


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the interpreter: does what its third argument says ("-m", "codegrep", WORDS)."""
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\necho "pid $$ in $(pwd) as $NAME"\neval "$3"\n')
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    return path


def run(folder: Path, words: str) -> tuple[int, str]:
    code = JobProcess().run([words], str(folder), str(folder / "log"), {"NAME": "value"})
    return code, (folder / "log").read_text()


def test_the_exit_code_is_the_jobs(program: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "exit 7")[0] == 7
    code, log = run(tmp_path, "echo done >&2")
    assert code == 0 and "done" in log and f"in {tmp_path} as value" in log
    assert log.count("pid ") == 2, "a second start appends"
    assert run(tmp_path, "kill -9 $$")[0] == -signal.SIGKILL


def test_a_folder_that_is_not_there_is_the_checkout(program: Path, tmp_path: Path) -> None:
    assert JobProcess().run(["true"], str(tmp_path / "gone"), str(tmp_path / "log"), {}) == 0
    assert f"in {ROOT} " in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("words", "code"), [("exec sleep 60", -2), ("trap '' INT; while :; do sleep 0.1; done", -9)])
def test_it_is_interrupted_and_then_killed(program: Path, tmp_path: Path, words: str, code: int) -> None:
    process, ended = JobProcess(), []
    runner = threading.Thread(
        target=lambda: ended.append(process.run([words], str(tmp_path), str(tmp_path / "log"), {}))
    )
    runner.start()
    wait(lambda: (tmp_path / "log").is_file() and "pid" in (tmp_path / "log").read_text())
    process.stop(1.0)
    runner.join(20)
    assert ended in ([code], [130]), "a shell tells of its interruption by 130"


def test_one_that_was_stopped_before_it_began_never_begins(program: Path, tmp_path: Path) -> None:
    process = JobProcess()
    process.stop(1.0)
    assert process.run(["true"], str(tmp_path), str(tmp_path / "log"), {}) == 130
    assert not (tmp_path / "log").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_it_ends_with_its_watcher_also_by_kill_9(program: Path, tmp_path: Path) -> None:
    given = f"['sleep 60'], {str(tmp_path)!r}, {str(tmp_path / 'log')!r}, {{}}"
    code = (
        "import sys; from codegrep.sweeps.job_process import JobProcess; "
        f"sys.executable = {str(program)!r}; JobProcess().run({given})"
    )
    watcher = subprocess.Popen([REAL, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    wait(lambda: (tmp_path / "log").is_file() and "pid" in (tmp_path / "log").read_text())
    pid = int((tmp_path / "log").read_text().split()[1])
    watcher.kill()
    watcher.wait()
    wait(lambda: not alive(pid))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait(reached, seconds: float = 60) -> None:  # type: ignore[no-untyped-def]
    limit = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.05)
