"""Reading the curves of a run back from MLflow."""

from __future__ import annotations

from collections.abc import Callable

from codegrep.tracking import store
from codegrep.tracking.run import TrackingHandle

History = list[dict[str, float]]


def history(handle: TrackingHandle, wanted: Callable[[str], bool] = lambda name: True) -> History:
    """Return the metrics of a run, one dict a step.

    Args:
        handle: which run.
        wanted: takes a metric's name; every metric costs one request.

    Returns:
        Rows sorted by step, each with "step" and the metrics logged at it. Of a step that was logged twice (a run
        continued from an earlier checkpoint) the later value counts.

    Raises:
        MlflowException: the run cannot be read.
    """
    client = store.connect(handle.uri)
    rows: dict[int, dict[str, float]] = {}
    for name in sorted(client.get_run(handle.run_id).data.metrics):
        if not wanted(name):
            continue
        for point in sorted(client.get_metric_history(handle.run_id, name), key=lambda point: point.timestamp):
            rows.setdefault(point.step, {"step": float(point.step)})[name] = point.value
    return [rows[step] for step in sorted(rows)]
