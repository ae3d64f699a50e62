"""A job of a sweep as a process of its own on a node of the cluster, watched by a small Ray actor."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import codegrep

_LIBC = ctypes.CDLL(None)  # loaded before any fork
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.3


class JobProcess:
    """Runs `python -m codegrep …` and waits for it; a Ray actor with two threads, one for `run` and one for `stop`.

    The process is the same as that of a single run, with its own interpreter, handlers and connection to Ray: what ends
    it (also a kill by the kernel when memory runs out) ends nothing else. It is stopped when this process ends, however
    that happens.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self, arguments: Sequence[str], folder: str, log: str, environment: Mapping[str, str]) -> int:
        """Run the job; return its exit code, -N when signal N ended it.

        Args:
            arguments: of `python -m codegrep`.
            folder: working directory, taken where it is there (relative paths of the configuration start from it).
            log: file that gets its output, appended.
            environment: added to this process's own.
        """
        if self._stopped:
            return 130
        root = Path(codegrep.__file__).parents[1]
        with Path(log).open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "codegrep", *arguments],
                cwd=folder if Path(folder).is_dir() else root,
                env=_environment(root) | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the sweep's terminal comes through `stop`, once
                preexec_fn=_end_with_parent,
            )
        while (code := self._process.poll()) is None:
            time.sleep(_POLL_SECONDS)
        return code

    def stop(self, patience: float) -> None:
        """Interrupt the job as Ctrl-C would, and kill it when it has not ended after `patience` seconds."""
        self._stopped = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        limit = time.monotonic() + patience
        while process.poll() is None:
            if time.monotonic() > limit:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                return
            time.sleep(_POLL_SECONDS)


def _environment(root: Path) -> dict[str, str]:
    """Leave out what Ray sets for a worker that was promised no CPU, and add the code that the sweep runs."""
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "RAY_JOB_ID")}
    paths = [str(root), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return kept | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}


def _end_with_parent() -> None:
    """Make the child interruptible, and on Linux end it with SIGTERM when the parent ends, also by kill -9.

    What a shell starts in the background ignores SIGINT, and so would all of its children.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with suppress(OSError, AttributeError):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
