"""A Ray cluster of several nodes on this machine, with token authentication, in a process of its own.

    python -m tests.runtime.raylets DASHBOARD CPUS CPUS …      the first node is the head

It prints a line of JSON when all nodes are up, then obeys lines on standard input: `kill N` (kill -9 of a node and all
that runs there), `add CPUS`, `hosts TITLE` (nodes with a process of that title). It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_STORE = 80 * 2**20


def main() -> None:
    dashboard, cpus = sys.argv[1] == "1", [float(text) for text in sys.argv[2:]]
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "240")  # a busy machine; Ray reads it when it is imported
    from ray.cluster_utils import Cluster

    # The agent of a node takes jobs; its usual port belongs to whatever other Ray runs on the machine.
    common = {"object_store_memory": _STORE, "dashboard_agent_listen_port": 0}
    head = {"num_cpus": cpus[0], "include_dashboard": dashboard, "dashboard_port": 0, **common}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: list[Any] = [cluster.head_node]
    nodes += [cluster.add_node(num_cpus=number, **common) for number in cpus[1:]]
    say({"address": cluster.address, "dashboard": str(getattr(cluster, "webui_url", ""))})
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "kill":
            kill(nodes[int(rest)])
            say({"killed": int(rest)})
        elif word == "add":
            nodes.append(cluster.add_node(num_cpus=float(rest), **common))
            say({"node": len(nodes) - 1})
        elif word == "hosts":
            say({"hosts": [n for n, node in enumerate(nodes) if any(rest in t for t in titles(node).values())]})
    cluster.shutdown()


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def raylet_pid(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def titles(node: Any) -> dict[int, str]:
    """Processes that a node's raylet has started."""
    parent, found = raylet_pid(node), {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


def kill(node: Any) -> None:
    """As when a machine loses its power: nothing on it gets a chance to say anything."""
    for pid in [raylet_pid(node), *titles(node)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@dataclass
class Raylets:
    """The running cluster, from the outside."""

    process: subprocess.Popen[str]
    environment: dict[str, str]
    address: str = ""
    dashboard: str = ""

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return dict(json.loads(line))
        raise AssertionError(f"the cluster ended with {self.process.wait()}")

    def hosts(self, title: str) -> list[int]:
        return list(self.ask(f"hosts {title}")["hosts"])


def _started(
    cpus: Sequence[float], folder: Path, dashboard: bool, environment: dict[str, str], token: dict[str, str]
) -> Raylets:
    """Ray gives its processes half a minute to come up; a busy machine is given three tries."""
    for attempt in (1, 2, 3):
        with (folder / f"raylets-{attempt}.err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.runtime.raylets", str(int(dashboard)), *(f"{n:g}" for n in cpus)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        made = Raylets(process, token)
        try:
            said = made.answer()
            made.address, made.dashboard = said["address"], said["dashboard"]
            return made
        except AssertionError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    raise AssertionError((folder / "raylets-3.err").read_text()[-2000:])


@contextmanager
def raylets(cpus: Sequence[float], folder: Path, dashboard: bool = False) -> Iterator[Raylets]:
    """Nodes with so many CPUs, the head first; gone afterwards."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    environment = {**os.environ, **token, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    # A job runs the `python` of its cluster, also when these tests were started by the full name of their interpreter.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    made = _started(cpus, folder, dashboard, environment, token)
    process = made.process
    try:
        yield made
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
