"""Which MLflow run belongs to an experiment's folder: made once, found again, never made twice."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from codegrep.errors import ConfigError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_RUN_ID = re.compile(r"[0-9a-f]{32}")
_KEY_TAG = "codegrep.key"
_USER_TAG = "mlflow.user"  # what MLflow's pages show as the user


def recorded(run_id_file: Path) -> str | None:
    """Return the run id that a file names; None where there is none yet."""
    return _first_line(run_id_file) or None


def create_once(client: MlflowClient, experiment_id: str, name: str, run_id_file: Path, key: str | None = None) -> str:
    """Id of the run that carries the key, created if there is none. The file names it afterwards.

    Args:
        key: letters, digits, '_' and '-'; None takes the one beside the file (`<run_id_file>.key`), or makes one up and
            leaves it there. It stays, so that the run is found again in every store that it was ever recorded in.
    """
    key = key or _own_key(run_id_file.with_name(f"{run_id_file.name}.key"))
    found = client.search_runs([experiment_id], f"tags.`{_KEY_TAG}` = '{key}'", max_results=1)
    if found:
        run_id = str(found[0].info.run_id)
    else:
        tags = {_KEY_TAG: key}
        if person := os.environ.get("MLFLOW_TRACKING_USERNAME"):  # who logs in; nobody else is named
            tags[_USER_TAG] = person
        run_id = str(client.create_run(experiment_id, tags=tags, run_name=name).info.run_id)
    _write(run_id_file, run_id)
    return run_id


def _own_key(path: Path) -> str:
    key = _first_line(path)
    if not (key.isalnum() and key.isascii()):
        key = uuid.uuid4().hex
        _write(path, key)
    return key


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip().partition("\n")[0].strip()
    except (OSError, ValueError):
        return ""


def _write(path: Path, line: str) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    fresh.write_text(line + "\n", encoding="utf-8")
    fresh.replace(path)


def is_there(client: MlflowClient, run_id: str) -> bool:
    """Whether the store has the run, and nobody deleted it.

    A server with logins says of a run that it does not have, such as one of another store, that it may not be read.
    """
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run_id).info.lifecycle_stage == "active")
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "PERMISSION_DENIED"):
            return False
        raise


def experiment(client: MlflowClient, name: str, location: str | None) -> str:
    """Id of the experiment of that name, made when it is new, restored when it was deleted.

    Args:
        client: of the store.
        name: of the experiment.
        location: where the artifacts of a new one go; None leaves it to the store.
    """
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            # Without the kind its page opens on traces.
            kind = {"mlflow.experimentKind": "custom_model_development"}
            return str(client.create_experiment(name, artifact_location=location, tags=kind))
        except MlflowException as error:  # another process was faster
            found = client.get_experiment_by_name(name)
            if found is None:
                raise error
    if found.lifecycle_stage != "active":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def run_named(client: MlflowClient, word: str, outputs: Path) -> str | None:
    """Return the MLflow run id that a word of the command line means; None where it names no run.

    Args:
        client: of the store.
        word: a run id, its first eight digits or more, or the name of the run's folder under `outputs`/runs.
        outputs: folder of outputs.
    """
    if _RUN_ID.fullmatch(word):
        return word
    if (known := recorded(outputs / "runs" / Path(word).name / "mlflow_run_id")) is not None:
        return known
    if re.fullmatch(r"[0-9a-f]{8,31}", word) is None:
        return None
    experiments = [found.experiment_id for found in client.search_experiments()]
    ids = [str(run.info.run_id) for run in client.search_runs(experiments, max_results=50_000)]
    fitting = [run_id for run_id in ids if run_id.startswith(word)]
    return fitting[0] if len(fitting) == 1 else None


def policy_named(client: MlflowClient, word: str, outputs: Path) -> str:
    """Return the URI, models:/… or runs:/…, of the policy that a word means.

    Args:
        client: of the store.
        word: such a URI, or a run as `run_named` takes it.
        outputs: folder of outputs.

    Raises:
        ConfigError: the word names nothing.
    """
    if word.startswith(("models:/", "runs:/")):
        return word
    if (run_id := run_named(client, word, outputs)) is None:
        raise ConfigError(
            f"there is no run called '{word}' in {outputs}",
            "Give a run's folder name or id (python -m codegrep compare lists them), models:/NAME@ALIAS or runs:/ID",
        )
    return f"runs:/{run_id}"
