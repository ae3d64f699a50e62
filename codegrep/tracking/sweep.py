"""A sweep in MLflow: one parent run, and a child run for each job. The API of whoever launches sweeps.

The launcher, once, also when a killed sweep is started again:

    parent = open_sweep(config.tracking, config.outputs_path, sweep_id, name="v1,v2,v3 x 3 seeds")   # a Tracker
    overrides = job_settings(sweep_id, parent.run_id)      # {"tracking.sweep": …, "tracking.parent_run": …}
    …                                                      # every job runs with these two keys set
    parent.table(outcomes, "sweep/outcomes.json")
    parent.finish("FINISHED")                              # or FAILED, KILLED

A job needs nothing else: `pipeline.run` puts `child_tags(config.tracking)` on its own MLflow run. `tracking` is no part
of a run's identity, so a job that is started again, by the sweep or by hand, continues the same child run.

Tags (constants below): the parent has codegrep.kind=sweep and codegrep.sweep=<id>; a child has codegrep.kind=run,
mlflow.parentRunId=<parent> and codegrep.sweep.<id>=member. Membership is a tag of its own for each sweep, so a run that
two sweeps share belongs to both; MLflow's pages show it below the later one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from codegrep.errors import ConfigError
from codegrep.tracking import store
from codegrep.tracking.run import Tracker

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

    from codegrep.config import TrackingConfig

KIND = "codegrep.kind"  # "sweep", "run" or "comparison"
SWEEP = "codegrep.sweep"
PARENT = "mlflow.parentRunId"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def check_sweep_id(sweep_id: str) -> str:
    """Return the id, if it can be one: a letter or digit, then at most 63 letters, digits, '_' and '-'.

    Raises:
        ConfigError: it cannot.
    """
    if not _ID.fullmatch(sweep_id):
        raise ConfigError(
            f"{sweep_id!r} cannot be the id of a sweep", "Use at most 64 letters, digits, '_' and '-', a letter first"
        )
    return sweep_id


def open_sweep(
    tracking: TrackingConfig,
    outputs: Path,
    sweep_id: str,
    *,
    name: str = "",
    tags: Mapping[str, str] | None = None,
) -> Tracker:
    """Return the sweep's parent run, created or continued, and marked RUNNING.

    The run is found by `<outputs>/sweeps/<sweep_id>/mlflow_run_id`, and where that is missing (another machine) by its
    tag in the MLflow experiment. Two launchers must not open a new sweep at the same moment: hold a lock.

    Args:
        tracking: conf/tracking of the jobs; parent and children must be in one MLflow experiment.
        outputs: folder that everything is written under.
        sweep_id: names the sweep for good; see `check_sweep_id`.
        name: for people; the id when empty.
        tags: more tags for the parent.

    Returns:
        A Tracker of the parent: `run_id`, `metrics`, `table`, `artifact`, and `finish(status)` at the end.

    Raises:
        ConfigError: the id is none.
        InfrastructureError: a new sweep cannot be recorded since MLflow cannot be reached.
    """
    check_sweep_id(sweep_id)
    uri, location = store.resolve(tracking, outputs)
    return Tracker.start(
        uri=uri,
        experiment=tracking.experiment,
        name=name or sweep_id,
        tags={**(tags or {}), KIND: "sweep", SWEEP: sweep_id},
        run_id_file=outputs / "sweeps" / sweep_id / "mlflow_run_id",
        artifact_location=location,
        key=f"sweep-{sweep_id}",
        patience=tracking.start_patience_seconds,
    )


def job_settings(sweep_id: str, parent_run_id: str) -> dict[str, str]:
    """Config keys, dotted, that make a job a child of the sweep: set them in every job's configuration."""
    return {"tracking.sweep": check_sweep_id(sweep_id), "tracking.parent_run": parent_run_id}


def child_tags(tracking: TrackingConfig) -> dict[str, str]:
    """Tags of a job's run; outside a sweep only its kind."""
    tags = {KIND: "run"}
    if tracking.sweep:
        tags[f"{SWEEP}.{check_sweep_id(tracking.sweep)}"] = "member"
    if tracking.parent_run:
        tags[PARENT] = tracking.parent_run
    return tags


def parent_of(client: MlflowClient, sweep_id: str) -> Run | None:
    """Return the sweep's parent run in whichever experiment it is; None where there is none."""
    found = client.search_runs(
        _experiments(client), f"tags.`{KIND}` = 'sweep' and tags.`{SWEEP}` = '{check_sweep_id(sweep_id)}'"
    )
    return found[0] if found else None


def children_of(client: MlflowClient, sweep_id: str) -> list[Run]:
    """Return the runs of a sweep's jobs, in the order in which they started."""
    query, order = f"tags.`{SWEEP}.{check_sweep_id(sweep_id)}` = 'member'", ["attributes.start_time ASC"]
    runs: list[Run] = []
    token = None
    while True:
        page = client.search_runs(_experiments(client), query, order_by=order, max_results=1000, page_token=token)
        runs += page
        token = page.token
        if not token:
            return runs


def _experiments(client: MlflowClient) -> list[str]:
    return [found.experiment_id for found in client.search_experiments()]
