"""Which runs are meant, and where they are."""

from __future__ import annotations

import difflib
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from codegrep.errors import ConfigError, DataError, InfrastructureError
from codegrep.tracking import identity, store, sweep
from codegrep.tracking.parameters import masked_text

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient


def open_store(uri: str, outputs: Path) -> tuple[MlflowClient, str]:
    """Return a client of the store, and its URI.

    Raises:
        ConfigError: there is no SQLite file under `outputs`.
        InfrastructureError: the server does not answer.
    """
    if not uri:
        database = outputs.expanduser().absolute() / "mlflow.db"
        if not database.is_file():
            raise ConfigError(
                f"there is no mlflow.db in {outputs}", "Name the folder with --outputs, or the server with --uri"
            )
        uri = store.sqlite_uri(outputs)
    try:
        client = store.connect(uri)
        client.search_experiments(max_results=1)
    except ImportError:
        raise
    except Exception as error:  # whatever a client, a driver or a network can raise
        raise InfrastructureError(
            f"MLflow cannot be read at {masked_text(uri)} ({type(error).__name__})", "Start the server, or check --uri"
        ) from error
    return client, uri


def chosen_runs(client: MlflowClient, words: Sequence[str], outputs: Path) -> tuple[str, list[Run], str]:
    """Name of the comparison, the runs, and the run id of the sweep's parent ("" where runs were named one by one).

    Args:
        words: one sweep id; or runs, each by MLflow run id (the first eight digits and more are enough) or by the name
            of its folder under `outputs`/runs.

    Raises:
        ConfigError: a word names nothing.
        DataError: the sweep has no runs.
    """
    if len(words) == 1 and _could_be_sweep(words[0]) and (parent := sweep.parent_of(client, words[0])):
        found = sweep.children_of(client, words[0])
        if not found:
            raise DataError(f"no job of sweep {words[0]} has begun yet", "")
        return words[0], found, str(parent.info.run_id)
    runs = {run.info.run_id: run for run in (_run(client, word, outputs) for word in words)}
    return named_after(list(runs)), sorted(runs.values(), key=lambda run: run.info.start_time), ""


def listing(client: MlflowClient) -> Table:
    """Return what there is to compare, newest first: sweeps, then training and evaluation runs."""
    experiments = [found.experiment_id for found in client.search_experiments()]
    table = Table(box=None, pad_edge=False)
    for column in ("name", "state", "scale", "date", "held-out F0.5"):
        table.add_column(column, justify="right" if column.startswith("held") else "left", no_wrap=True)
    newest = ["attributes.start_time DESC"]
    for parent in client.search_runs(experiments, f"tags.`{sweep.KIND}` = 'sweep'", order_by=newest):
        sweep_id = parent.data.tags[sweep.SWEEP]
        jobs = sweep.children_of(client, sweep_id)
        done = sum(job.info.status == "FINISHED" for job in jobs)
        scales = sorted({job.data.tags.get("codegrep.scale", "") for job in jobs} - {""})
        scores = [score for job in jobs if (score := _held_out(job)) is not None]
        between = f"{min(scores):.3f} to {max(scores):.3f}" if scores else ""
        state = f"sweep, {done} of {len(jobs)} finished"
        table.add_row(sweep_id, state, ", ".join(scales), _date(parent), between)
    for run in client.search_runs(experiments, order_by=newest):
        folder = run.data.tags.get("codegrep.run_folder")
        if folder:
            score = _held_out(run)
            shown = "" if score is None else f"{score:.3f}"
            scale = run.data.tags.get("codegrep.scale", "")
            table.add_row(folder, str(run.info.status).lower(), scale, _date(run), shown)
    return table


def _held_out(run: Run) -> float | None:
    """F0.5 of the run's best-trained model that was measured."""
    metrics = run.data.metrics
    models = ("trained", "warm_start", "loaded", "base")
    return next((metrics[f"eval/{m}/f05_mean"] for m in models if f"eval/{m}/f05_mean" in metrics), None)


def _date(run: Run) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(run.info.start_time / 1000))


def comparison_run(client: MlflowClient, compared: Sequence[Run], name: str, run_id_file: Path) -> str:
    """Id of the run that keeps the page of these runs; made once, found again by their ids."""
    experiment_id = compared[0].info.experiment_id
    recorded = identity.recorded(run_id_file)
    if recorded and identity.is_there(client, recorded):
        return recorded
    run_id = identity.create_once(client, experiment_id, f"compare {name}", run_id_file, key=f"compare-{name}")
    client.set_tag(run_id, sweep.KIND, "comparison")
    for number, run in enumerate(compared):
        client.set_tag(run_id, f"codegrep.compares.{number}", run.info.run_id)
    client.set_terminated(run_id, status="FINISHED", end_time=int(time.time() * 1000))
    return run_id


def named_after(run_ids: Sequence[str]) -> str:
    """Return a name for runs that no sweep holds together, the same for the same runs in any order."""
    return f"runs-{hashlib.sha256(' '.join(sorted(run_ids)).encode()).hexdigest()[:10]}"


def _run(client: MlflowClient, word: str, outputs: Path) -> Run:
    from mlflow.exceptions import MlflowException

    run_id = identity.run_named(client, word, outputs)
    if run_id is None:
        raise ConfigError(f"there is no sweep and no run called '{word}'", _hint(client, word, outputs))
    try:
        return client.get_run(run_id)
    except MlflowException:
        raise ConfigError(f"MLflow has no run {run_id}", "See python -m codegrep compare without arguments") from None


def _could_be_sweep(word: str) -> bool:
    try:
        return bool(sweep.check_sweep_id(word))
    except ConfigError:
        return False


def _hint(client: MlflowClient, word: str, outputs: Path) -> str:
    experiments = [found.experiment_id for found in client.search_experiments()]
    parents = client.search_runs(experiments, f"tags.`{sweep.KIND}` = 'sweep'")
    folders = [path.name for path in (outputs / "runs").glob("*") if path.is_dir()]
    near = difflib.get_close_matches(word, [p.data.tags[sweep.SWEEP] for p in parents] + folders, n=1)
    return f"Did you mean {near[0]}?" if near else "python -m codegrep compare, without arguments, lists them"
