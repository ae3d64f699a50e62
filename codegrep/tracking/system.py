"""Use of the machine while a run goes on: CPU, memory, disk, network and GPU, measured with MLflow's own monitors.

MLflow's monitor thread writes to the server directly and ends at the first request that fails. Here the numbers go the
way of all metrics, through the run's tracker, so that those of an hour without a server are there afterwards.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from codegrep.tracking.names import segment

if TYPE_CHECKING:
    from codegrep.tracking.run import Tracker

_log = logging.getLogger("codegrep.tracking")
# MLflow's pages show metrics with this prefix on a page of their own, by time.
PREFIX = "system"


class SystemMetrics:
    """Records the use of this machine until it is closed. A context manager.

    Args:
        tracker: of the run.
        seconds: between two records; 0 records nothing.
        node: set where a run uses several machines: the numbers stand under system/<node>/.
        since: epoch seconds that steps count from; a step is a second.
    """

    def __init__(self, tracker: Tracker, seconds: float, node: str = "", since: float = 0.0) -> None:
        self._tracker, self._seconds = tracker, seconds
        self._prefix = f"{PREFIX}/{segment(node)}" if node else PREFIX
        self._since = since or time.time()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> SystemMetrics:
        monitors = _monitors() if self._seconds > 0 else []
        if monitors:
            self._thread = threading.Thread(target=self._record, args=(monitors,), name="system metrics", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join(timeout=10)  # a server that hangs must not hold up the end of a run

    def _record(self, monitors: Sequence[Any]) -> None:
        while not self._done.wait(self._seconds):
            try:
                found: dict[str, float | None] = {}
                for monitor in monitors:
                    monitor.collect_metrics()
                    found.update({f"{self._prefix}/{k}": float(v) for k, v in monitor.aggregate_metrics().items()})
                    monitor.clear_metrics()
            except Exception as error:  # a driver that fails, a disk that is gone: never worth a run
                _log.warning("system metrics end here (%s: %s)", type(error).__name__, str(error)[:160])
                return
            self._tracker.metrics(found, step=max(0, int(time.time() - self._since)))


def _monitors() -> list[Any]:
    """MLflow's monitors for what this machine has."""
    try:
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor
    except ImportError as error:
        _log.warning("no system metrics: %s", error)
        return []
    found: list[Any] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    for module, name in (("gpu_monitor", "GPUMonitor"), ("rocm_monitor", "ROCMMonitor")):
        try:
            found.append(getattr(__import__(f"mlflow.system_metrics.metrics.{module}", fromlist=[name]), name)())
        except Exception:  # no such GPU, or the package that reads it (nvidia-ml-py, pyrsmi) is missing
            continue
        break
    return found
