"""conf/tracking: where a run is recorded."""

from __future__ import annotations

from codegrep.config.setting import group, setting


@group
class TrackingConfig:
    """conf/tracking."""

    name: str = setting("label")
    uri: str = setting("MLflow tracking URI; empty: SQLite under `outputs`")
    experiment: str = setting("MLflow experiment; its runs are compared side by side")
    artifact_location: str | None = setting("of a new experiment's artifacts; null: the store's", default=None)
    register: str = setting(
        "name that trained policies are registered under; alias `best` goes to the highest held-out F0.5", default=""
    )
    sweep: str = setting("id of the sweep; set by the launcher", default="")
    parent_run: str = setting("MLflow run id of the sweep's parent; set by the launcher", default="")
    start_patience_seconds: float = setting("seconds that a new run waits for a server", ge=0, default=0.0)
    system_metrics_seconds: float = setting("seconds between records of machine use; 0: never", ge=0, default=10.0)
