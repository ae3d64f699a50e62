"""SLURM: a batch job that starts Ray on its nodes, runs the experiment and takes Ray down again."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import codegrep
from codegrep.config import SubmitConfig
from codegrep.errors import CodegrepError, ConfigError
from codegrep.submit import programs
from codegrep.submit.job import ClusterJob
from codegrep.submit.jobs_api import UNKNOWN, say
from codegrep.submit.kuberay import pods_for

PATIENCE_SECONDS = 600.0
_AGAIN_SECONDS = 10.0
_ENDED = {
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
}
_PLAIN = re.compile(r"[A-Za-z0-9_.,:+/@%-]+")


class Slurm:
    """A Target. conf/cluster/slurm.yaml explains the options; the script is ray_jobs/slurm.sh."""

    def __init__(self, settings: SubmitConfig) -> None:
        self._settings = settings
        self._options = settings.options

    def render(self, job: ClusterJob) -> str:
        """Return the batch script."""
        options = self._options
        node = options["node"]
        nodes = max(1, pods_for(job.request.bundles, node))
        directives = {
            "job-name": job.id,
            "nodes": str(nodes),
            "ntasks-per-node": "1",
            "cpus-per-task": str(int(node["cpus"])),
            "mem": str(node["memory"]),
            "time": str(options["time"]),
            "output": f"{options['logs']}/{job.id}.log",
            **({"gpus-per-node": str(int(node["gpus"]))} if node.get("gpus") else {}),
            **{str(key): str(value) for key, value in (options.get("sbatch") or {}).items()},
        }
        for key, value in directives.items():
            if not _PLAIN.fullmatch(value) or not re.fullmatch(r"[a-z-]+", key):
                raise ConfigError(f"--{key}={value} cannot stand in a batch script", "Check cluster.submit.options")
        if any(self._settings.secrets.values()):
            raise ConfigError(
                "SLURM knows no references to secrets",
                "Set the variables where you submit from and give +cluster.submit.secrets.NAME=; they are handed on",
            )
        exported = [f"{name}={value}" for name, value in sorted(self._settings.env.items())]
        return _filled(
            directives="\n".join(f"#SBATCH --{key}={value}" for key, value in directives.items()),
            setup=str(options.get("setup") or "true"),
            folder=shlex.quote(str(options["folder"])),
            exports="\n".join(f"export {shlex.quote(pair)}" for pair in exported) or "true",
            required=" ".join(sorted(self._settings.secrets)),
            gpus=str(int(node.get("gpus", 0))),
            cpus=str(int(node["cpus"])),
            entrypoint=job.entrypoint,
        )

    def submit(self, job: ClusterJob) -> None:
        """Hand the script to sbatch."""
        names = ["HOME", "PATH", "USER", *sorted(self._settings.secrets)]
        programs.run(["sbatch", "--parsable", f"--export={','.join(names)}"], stdin=self.render(job))

    def follow(self, job_id: str) -> int:
        """Print the job's log until it ends; return its exit code."""
        log = Path(str(self._options["logs"])) / f"{job_id}.log"
        printed, asked = 0, time.monotonic()
        while True:
            printed = _show(log, printed)
            try:
                state, code = self._state(job_id)
                asked = time.monotonic()
            except CodegrepError as error:
                if time.monotonic() - asked > PATIENCE_SECONDS:
                    say(f"{job_id} cannot be asked about: {error}")
                    return UNKNOWN
                state, code = "", 0
            if state in _ENDED:
                _show(log, printed)
                if code:
                    say(f"{job_id} {state}")
                return code
            time.sleep(_AGAIN_SECONDS)

    def status(self, job_id: str) -> str:
        """Return the job's state in one line."""
        state, code = self._state(job_id)
        return state + (f", exit code {code}" if state in _ENDED else "")

    def stop(self, job_id: str) -> str:
        """Send SIGINT to the script, so that the run ends in order."""
        programs.run(["scancel", "--signal=INT", "--full", "--name", job_id])
        return "told to stop"

    def _state(self, job_id: str) -> tuple[str, int]:
        fields = "--format=State,ExitCode"
        text = programs.run(["sacct", "--name", job_id, "-X", "--noheader", "--parsable2", fields])
        return parse_state(text)


def parse_state(text: str) -> tuple[str, int]:
    """Read state and exit code from sacct's last line, "STATE|CODE:SIGNAL"; nothing yet is ("PENDING", 0)."""
    lines = [line for line in text.strip().splitlines() if line]
    if not lines:
        return "PENDING", 0
    state, _, codes = lines[-1].partition("|")
    state = state.split(" ")[0].rstrip("+")
    code, _, signal = codes.partition(":")
    number = int(code or 0) or (128 + int(signal) if signal not in ("", "0") else 0)
    if state in _ENDED and state != "COMPLETED" and not number:
        number = 130 if state == "CANCELLED" else 1
    return state, number


def _filled(**values: str) -> str:
    """Replace the placeholders of the script, @{name}: a shell script is full of dollars."""
    package = Path(codegrep.__file__).parent
    folder = package / "ray_jobs" if (package / "ray_jobs").is_dir() else package.parent / "ray_jobs"
    script = (folder / "slurm.sh").read_text(encoding="utf-8")
    return re.sub(r"@\{(\w+)\}", lambda found: values[found[1]], script)


def _show(log: Path, printed: int) -> int:
    try:
        with log.open("rb") as file:
            file.seek(printed)
            data = file.read()
    except OSError:
        return printed
    print(data.decode("utf-8", errors="replace"), end="", flush=True)
    return printed + len(data)
