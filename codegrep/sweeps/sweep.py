"""The queue of a sweep: starts jobs as the cluster can carry them, waits, and keeps what became of each."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from codegrep.runtime.progress import Progress
from codegrep.runtime.resources import Bundle, Ledger, Node, Request, living_nodes, place
from codegrep.sweeps import job_results
from codegrep.sweeps.job_process import JobProcess
from codegrep.sweeps.job_results import JobResult

# Time for a job to end in order after Ctrl-C; then it is killed.
STOP_SECONDS = 60.0
_POLL_SECONDS = 1.0
_STATUS_SECONDS = 60.0
_HANDED_ON = ("OMP_NUM_THREADS", "CODEGREP_MODELS")
_INTERRUPTED = 130


@dataclass(frozen=True)
class Job:
    """One job, ready to start.

    Attributes:
        number: in the sweep, from 0.
        overrides: what sets it apart, for people.
        arguments: of `python -m codegrep`.
        run: name of its run folder.
        request: what the cluster must have free.
    """

    number: int
    overrides: tuple[str, ...]
    arguments: tuple[str, ...]
    run: str
    request: Request

    @property
    def log(self) -> str:
        """File name of its output in the sweep's folder."""
        return f"{self.number:03d}-{self.run}.log"


@dataclass(frozen=True)
class LauncherSettings:
    """conf/hydra/launcher/ray.yaml, which explains them. wait_for_nodes: minutes."""

    at_once: int = 0
    share_nodes: bool = False
    restarts: int = 1
    redo: bool = False
    wait_for_nodes: float = 0.0
    name: str = ""


@dataclass
class _Running:
    job: Job
    actor: Any
    began: float
    before: JobResult


class Queue:
    """Runs jobs in their order as the cluster can carry them.

    The first that does not fit waits, and those behind it wait with it, so that no large job is passed by for ever.

    Args:
        folder: of the sweep; logs and outcomes are written there.
        runs: folder of all runs.
        settings: of the launcher.
        progress: for the person who watches.
    """

    def __init__(
        self,
        folder: Path,
        runs: Path,
        settings: LauncherSettings,
        progress: Progress,
    ) -> None:
        self._folder, self._runs, self._settings, self._say = folder, runs, settings, progress.say
        self._ledger = Ledger()
        self._running: dict[Any, _Running] = {}
        self._result: dict[int, JobResult] = {}
        self._too_large_since: float | None = None
        self._said = time.monotonic()

    def run(self, jobs: Sequence[Job], known: Sequence[JobResult] = ()) -> list[JobResult]:
        """Run all jobs; return what became of them and of the known ones, in the order of their numbers.

        The record on disk is true at every moment. Ctrl-C stops the running jobs in order and is raised again after
        they are recorded.
        """
        self._result = {o.job: o for o in known}
        for job in jobs:
            self._result[job.number] = JobResult(job.number, job.overrides, job.run, job_results.WAITING)
        waiting = deque(jobs)
        self._write()
        try:
            while waiting or self._running:
                self._start_what_fits(waiting)
                self._collect(waiting)
        except KeyboardInterrupt:
            self._stop_all()
            raise
        finally:
            self._write()
        return self.outcomes

    @property
    def outcomes(self) -> list[JobResult]:
        """The results known so far."""
        return [self._result[number] for number in sorted(self._result)]

    def _start_what_fits(self, waiting: deque[Job]) -> None:
        while waiting and not (self._settings.at_once and len(self._running) >= self._settings.at_once):
            job = waiting[0]
            if any(running.job.run == job.run for running in self._running.values()):  # other stages of the same run
                return
            nodes = living_nodes(self._ledger)
            grant = self._ledger.admit(str(job.number), job.request, nodes)
            if grant is None:
                # Others may go, our own jobs will: only what an empty cluster could not carry is too large.
                empty = [replace(node, others=Bundle()) for node in nodes]
                if place(job.request, empty) is None and self._give_up(job, nodes):
                    waiting.popleft()
                    continue
                return
            self._too_large_since = None
            waiting.popleft()
            self._start(job, next(iter(grant), None))

    def _give_up(self, job: Job, nodes: Sequence[Node]) -> bool:
        """Refuse a job that no node set here can carry, once an autoscaler has had its time."""
        if self._too_large_since is None:
            self._too_large_since = time.monotonic()
            if self._settings.wait_for_nodes:
                self._say(f"waiting for nodes: job {job.number} asks for {job.request}")
                _ask_autoscaler(job.request)
        if time.monotonic() - self._too_large_since < self._settings.wait_for_nodes * 60:
            return False
        self._too_large_since = None
        have = ", ".join(str(node.total) for node in nodes)
        reason = f"it asks for {job.request}; the cluster has {have or 'no node'}"
        self._result[job.number] = replace(self._result[job.number], status=job_results.REFUSED, reason=reason)
        self._write()
        self._say(f"job {job.number} {' '.join(job.overrides)}: refused, {reason}")
        return True

    def _start(self, job: Job, node: str | None) -> None:
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": 2}
        if node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        actor: Any = ray.remote(JobProcess).options(**options).remote()
        environment = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        log = str((self._folder / job.log).absolute())
        reference = actor.run.remote(job.arguments, str(Path.cwd()), log, environment)
        before = self._result[job.number]
        self._running[reference] = _Running(job, actor, time.monotonic(), before)
        again = f", start {before.starts + 1}" if before.starts else ""
        self._say(f"job {job.number} {' '.join(job.overrides)}: started{again} ({self._folder.name}/{job.log})")

    def _collect(self, waiting: deque[Job]) -> None:
        if not self._running:
            if waiting:  # for nodes, or for other users of the cluster
                time.sleep(_POLL_SECONDS)
            return
        done, _ = ray.wait(list(self._running), timeout=_POLL_SECONDS)
        for reference in done:
            running = self._running.pop(reference)
            self._ledger.release(str(running.job.number))
            outcome = self._outcome(running, reference)
            self._result[running.job.number] = outcome
            self._write()
            ray.kill(running.actor)
            f05 = "" if outcome.f05 is None else f", F0.5 {outcome.f05:.3f}"
            reason = f": {outcome.reason}" if outcome.reason else ""
            self._say(f"job {outcome.job}: {outcome.status} after {outcome.seconds:.0f} s{f05}{reason}")
            if outcome.status == job_results.LOST and outcome.starts <= self._settings.restarts:
                waiting.appendleft(running.job)
        if not done:
            self._say_status()

    def _outcome(self, running: _Running, reference: Any) -> JobResult:
        job, log = running.job, self._folder / running.job.log
        code: int | None = None
        try:
            code = int(ray.get(reference))
            status = {0: job_results.COMPLETED, _INTERRUPTED: job_results.STOPPED}.get(code, job_results.FAILED)
            reason = "" if code == 0 else job_results.last_line(log)
            if code < 0:
                status, reason = job_results.LOST, f"its process was ended by signal {-code}"
            elif status == job_results.STOPPED:
                reason = "it was interrupted"
        except RayError as error:
            first = str(error).strip().partition("\n")[0]
            status, reason = job_results.LOST, f"its node or its watcher died ({first[:160]})"
        return replace(
            running.before,
            status=status,
            code=code,
            reason=reason,
            seconds=running.before.seconds + time.monotonic() - running.began,
            starts=running.before.starts + 1,
            f05=job_results.held_out_f05(self._runs / job.run) if code == 0 else None,
            log=job.log,
        )

    def _stop_all(self) -> None:
        """Interrupt what runs, and record it."""
        if self._running:
            self._say(f"stopping {len(self._running)} running job(s) …")
        stopping = [running.actor.stop.remote(STOP_SECONDS) for running in self._running.values()]
        try:
            ended: list[Any] = []
            if stopping:
                ray.wait(stopping, num_returns=len(stopping), timeout=STOP_SECONDS + 10)
                ended, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=10)
        except (KeyboardInterrupt, RayError):  # a second Ctrl-C: the jobs end with their watchers
            ended = []
        for reference, running in self._running.items():
            outcome = self._outcome(running, reference) if reference in ended else running.before
            self._result[running.job.number] = replace(
                outcome, status=job_results.STOPPED, reason="the sweep was stopped"
            )
        self._running.clear()

    def _say_status(self) -> None:
        if time.monotonic() - self._said < _STATUS_SECONDS:
            return
        self._said = time.monotonic()
        for running in self._running.values():
            line = job_results.last_line(self._folder / running.job.log, most=100)
            self._say(f"  job {running.job.number}, {self._said - running.began:.0f} s: {line}")

    def _write(self) -> None:
        job_results.write(self._folder, self.outcomes)


def _ask_autoscaler(request: Request) -> None:
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[{"CPU": b.cpus, "GPU": b.gpus} if b.gpus else {"CPU": b.cpus} for b in request.bundles])
