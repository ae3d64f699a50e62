"""conf/tracking: where a run is recorded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TrackingConfig:
    """conf/tracking.

    Attributes:
        uri: MLflow tracking URI; empty means SQLite under `outputs`.
        experiment: MLflow experiment; runs of one experiment are compared side by side.
        artifact_location: where a new experiment's artifacts go; None leaves it to the store.
        register: name that trained policies are registered under; empty leaves them unregistered. The alias "best"
            goes to the one with the highest held-out F0.5 on the same data.
        sweep, parent_run: id of the sweep and MLflow run id of its parent run; set by the launcher of a sweep.
        start_patience_seconds: how long a new run waits for a server that does not answer before it gives up.
        system_metrics_seconds: how often CPU, memory, disk, network and GPU use is recorded; 0 never.
    """

    name: str
    uri: str
    experiment: str
    artifact_location: str | None = None
    register: str = ""
    sweep: str = ""
    parent_run: str = ""
    start_patience_seconds: float = 0.0
    system_metrics_seconds: float = 10.0
