"""A tiny experiment on a generated repository, run through the real command line, and what it has started."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codegrep.issues.git import git_environment

ROOT = Path(__file__).parents[2]
TAG = "CODEGREP_TEST_RUN"  # in the environment of a run, so that whatever it starts can be found, also when orphaned
HELD_OUT = 4
STEPS = 2
LATENCY = 1
# The vocabulary of the nano model has 512 tokens, so that texts are some three times as long as with a real one.
SMALL = (
    "+experiment=v3",
    "data=git_history",
    "data.split.by=instance",
    "data.split.held_out_share=0.3",
    f"data.split.max_held_out={HELD_OUT}",
    "model=nano",
    "agent.max_turn_tokens=300",
    "agent.max_completion_tokens=900",
    "train.warm_start.max_tokens=8192",
    "train.warm_start.epochs=1",
    "train.warm_start.save_every=1",
    f"train.grpo.steps={STEPS}",
    "train.grpo.prompts_per_step=2",
    "train.grpo.group_size=2",
    "train.grpo.save_every=1",
    "model.context=8192",
    "evaluate.bootstrap=200",
    f"evaluate.latency_issues={LATENCY}",
    "cluster.num_cpus=2",
    "cluster.object_store_gib=0.1",
    "sandbox.min_free_gib=0.1",
)
_TOPICS = (
    "invoice",
    "parser",
    "cache",
    "session",
    "router",
    "schedule",
    "ledger",
    "template",
    "matrix",
    "archive",
    "dialog",
    "stream",
    "colour",
    "network",
)


def make_repository(folder: Path, topics: tuple[str, ...] = _TOPICS) -> Path:
    """A repository with one module and one fix commit a topic; its statements name the function, not the file."""
    folder.mkdir(parents=True)
    _git(folder, "init", "-q", "--initial-branch=main")
    for topic in topics:
        module = folder / "shop" / topic / f"{topic[:4]}_core.py"
        module.parent.mkdir(parents=True)
        module.write_text(_module(topic, f"{topic} / count"), encoding="utf-8")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_all.py").write_text("def test_nothing():\n    assert True\n", encoding="utf-8")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "Import the shop")
    for topic in topics:
        module = folder / "shop" / topic / f"{topic[:4]}_core.py"
        module.write_text(_module(topic, f"{topic} / count if count else 0.0"), encoding="utf-8")
        _git(folder, "add", "-A")
        _git(
            folder,
            "commit",
            "-q",
            "-m",
            f"Fix ZeroDivisionError in average_{topic} for an empty list\n\n"
            f"Calling average_{topic}() with no {topic} at all raised an error instead of giving zero, so every page\n"
            f"that shows a {topic} summary was broken for new customers.",
        )
    return folder


def _module(topic: str, expression: str) -> str:
    return (
        f'"""Everything about one {topic}."""\n\n\n'
        f"def average_{topic}({topic}, count):\n"
        f'    """Mean of the {topic} values."""\n'
        f"    return {expression}\n\n\n"
        f"def rename_{topic}(name):\n"
        f"    return name.strip().title()\n"
    )


def _git(folder: Path, *arguments: str) -> None:
    fields = {"NAME": "T", "EMAIL": "t@invalid", "DATE": "2024-03-01T10:00:00+00:00"}
    person = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in fields.items()}
    subprocess.run(["git", "-C", str(folder), *arguments], env=git_environment() | person, check=True)


@dataclass
class Experiment:
    """One command, which can be started several times on the same outputs.

    Attributes:
        folder: of this test; outputs and models are made in it.
        repository: see `make_repository`.
    """

    folder: Path
    repository: Path
    arguments: tuple[str, ...] = SMALL
    environment: dict[str, str] = field(default_factory=dict)
    started: list[Running] = field(default_factory=list)

    @property
    def outputs(self) -> Path:
        return self.folder / "outputs"

    def start(self, *more: str) -> Running:
        """The command in a session of its own; output goes to files."""
        number = len(self.started)
        tag = uuid.uuid4().hex
        command = [
            *(sys.executable, "-m", "codegrep", *self.arguments),
            *(
                [f"data.sources.git_history.args.path={self.repository}"]
                if "data=git_history" in self.arguments
                else []
            ),
            f"outputs={self.outputs}",
            *more,
        ]
        environment = {
            **os.environ,
            TAG: tag,
            "CODEGREP_MODELS": str(self.folder / "models"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
            **self.environment,
        }
        out, err = self.folder / f"stdout-{number}", self.folder / f"stderr-{number}"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=stdout, stderr=stderr, start_new_session=True
            )
        running = Running(process, tag, out, err)
        self.started.append(running)
        return running

    def run(self, *more: str, timeout: float = 900) -> Running:
        """The command, to its end."""
        running = self.start(*more)
        running.wait(timeout)
        return running

    def mlflow(self) -> Any:
        """A client of the run's record."""
        from codegrep.tracking.store import connect

        return connect(f"sqlite:///{self.outputs}/mlflow.db")

    def mlflow_runs(self) -> list[Any]:
        """All runs on record."""
        client = self.mlflow()
        return list(client.search_runs([found.experiment_id for found in client.search_experiments()]))

    def mlflow_files(self, run_id: str, folder: str | None = None) -> list[str]:
        """Paths of a run's artifacts."""
        found = []
        for item in self.mlflow().list_artifacts(run_id, folder):
            found += self.mlflow_files(run_id, item.path) if item.is_dir else [item.path]
        return found

    def clean_up(self) -> None:
        """End everything that was started here, whatever became of it."""
        for running in self.started:
            for pid in running.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


@dataclass
class Running:
    """A started command."""

    process: subprocess.Popen[bytes]
    tag: str
    out: Path
    err: Path
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the command and the children that it waited for; right when one runs at a time

    def __post_init__(self) -> None:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_seconds = used.ru_utime + used.ru_stime

    @property
    def stdout(self) -> str:
        return self.out.read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return self.err.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout: float) -> int:
        """Exit code; a command that takes longer is a failure."""
        code = self.process.wait(timeout)
        self.seconds = time.monotonic() - self.began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_seconds = used.ru_utime + used.ru_stime - self.cpu_seconds
        return code

    def until(self, reached: Callable[[], bool], seconds: float = 900) -> None:
        """Wait for something while the command runs."""
        limit = time.monotonic() + seconds
        while not reached():
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.stdout}\n{self.stderr}"
            assert time.monotonic() < limit, f"waited in vain\n{self.stdout}\n{self.stderr}"
            time.sleep(0.05)

    def processes(self) -> dict[int, str]:
        """Living processes of this run, itself and orphans included: id and title."""
        found = {}
        wanted = f"{TAG}={self.tag}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has just ended
            if state != "Z":
                found[int(entry.name)] = title.strip()
        return found

    def has(self, title: str) -> bool:
        """A process with these words in its title is alive."""
        return any(title in found for found in self.processes().values())

    def gone(self, seconds: float) -> dict[int, str]:
        """What still lives of this run after so long at most; empty is good."""
        limit = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < limit:
            time.sleep(0.2)
        return left
