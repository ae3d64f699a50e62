"""Trained policies as MLflow models: logged with signature and card, registered by name, found and fetched again."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.errors import ConfigError, ModelError
from codegrep.tracking.parameters import MAX_TAG, cut
from codegrep.tracking.policy_package import read_package

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

BEST = "best"
# Module that mlflow.pyfunc.load_model imports; nothing in the model is executed.
LOADER = "codegrep.pipeline.policies.pyfunc"
_ID = "codegrep.model_id"  # on a version: MLflow's SQL stores do not give back the id that it was made with
_DIGEST, _DATA, _F05 = "codegrep.digest", "codegrep.data_fingerprint", "codegrep.held_out_f05"
_MODEL_ID = re.compile(r"m-[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,99}")


def is_model_uri(text: str) -> bool:
    """Whether it names a model in MLflow."""
    return text.startswith(("models:/", "runs:/"))


def log_policy(
    client: MlflowClient, run_id: str, folder: Path, *, name: str, held_out_f05: float | None, data: str
) -> str:
    """Log a policy package as a model of the run; the model's id.

    A package that the run has logged already is not logged twice.

    Args:
        folder: a policy package; an MLmodel file is put beside its files.
        name: of the model, for people.
        held_out_f05: mean F0.5 on the held-out issues, None where it was not measured.
        data: fingerprint of the issues and their split.

    Raises:
        MlflowException: the store refuses it, or cannot be reached.
    """
    from mlflow.entities import LoggedModelOutput

    package = read_package(folder)
    run = client.get_run(run_id)
    experiment = run.info.experiment_id
    found = client.search_logged_models(
        [experiment], f"source_run_id = '{run_id}' AND tags.`{_DIGEST}` = '{package.digest}'"
    )
    if ready := [model for model in found if str(model.status) == "READY"]:
        return str(ready[0].model_id)
    tags = {_DIGEST: package.digest, _DATA: data, "codegrep.base": package.base.path}
    if held_out_f05 is not None:
        tags[_F05] = f"{held_out_f05:.6f}"
    model = client.create_logged_model(experiment, name, run_id, tags=tags, model_type="code-retrieval-policy")
    try:
        _write_mlmodel(folder, run_id, str(model.model_id))
        client.log_model_artifacts(model.model_id, str(folder))
    except BaseException:
        client.finalize_logged_model(model.model_id, "FAILED")
        raise
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    card = (folder / "README.md").read_text(encoding="utf-8")
    client.set_logged_model_tags(model.model_id, {"mlflow.note.content": cut(card, MAX_TAG)})
    return str(model.model_id)


def register(client: MlflowClient, model_id: str, name: str, *, alias: str = "", only_if_better: bool = False) -> str:
    """Make a logged model a version of a registered one; the version. A model that is one already stays that version.

    Args:
        name: of the registered model, made when it is new.
        alias: moved to this version; "" leaves aliases alone.
        only_if_better: move the alias only when no version has it, or when this one's held-out F0.5 is higher on the
            same data. (A difference of a point may be chance: `codegrep compare` says whether it is.)

    Raises:
        ConfigError: the name or alias cannot be one.
        MlflowException: the store refuses it, or cannot be reached.
    """
    from mlflow.exceptions import MlflowException

    check_name(name)
    try:
        client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        try:
            client.create_registered_model(name, description="Policies that find the files an issue is about")
        except MlflowException as late:
            if late.error_code != "RESOURCE_ALREADY_EXISTS":  # another run was faster
                raise
    model = client.get_logged_model(model_id)
    versions = [v for v in client.search_model_versions(f"name = '{name}'") if v.tags.get(_ID) == model_id]
    if versions:
        version = str(versions[0].version)
    else:
        # The place of the files, not "models:/…": that MLflow would look up in its global tracking URI, not in ours.
        made = client.create_model_version(
            name,
            model.artifact_location,
            run_id=model.source_run_id,
            tags={**model.tags, _ID: model_id},
            model_id=model_id,
        )
        version = str(made.version)
    if alias and (not only_if_better or _is_better(client, name, alias, model.tags)):
        client.set_registered_model_alias(name, alias, version)
    return version


def check_name(name: str) -> str:
    """Return the name of a registered model, if it can be one.

    Raises:
        ConfigError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a registered model", "Use letters, digits, spaces, '_', '-' and '.'"
        )
    return name


def resolve_model(client: MlflowClient, uri: str) -> str:
    """Id of the logged model that a URI means, so that an alias that moves does not change what is being measured.

    Args:
        uri: models:/NAME@ALIAS, models:/NAME/VERSION, models:/m-ID, or runs:/RUN_ID (the model that run logged last).

    Raises:
        ModelError: no such model.
    """
    from mlflow.exceptions import MlflowException

    kind, _, rest = uri.partition(":/")
    rest = rest.strip("/")
    try:
        if kind == "models" and _MODEL_ID.fullmatch(rest):
            return str(client.get_logged_model(rest).model_id)
        if kind == "models" and "@" in rest:
            name, _, alias = rest.rpartition("@")
            return _of_version(client.get_model_version_by_alias(name, alias), uri)
        if kind == "models" and "/" in rest:
            name, _, version = rest.rpartition("/")
            return _of_version(client.get_model_version(name, version), uri)
        if kind == "runs" and re.fullmatch(r"[0-9a-f]{32}", rest.partition("/")[0]):
            run_id = rest.partition("/")[0]
            experiment = client.get_run(run_id).info.experiment_id
            found = client.search_logged_models([experiment], f"source_run_id = '{run_id}'")
            ready = [model for model in found if str(model.status) == "READY" and _DIGEST in model.tags]
            if ready:
                return str(max(ready, key=lambda model: model.creation_timestamp).model_id)
            raise ModelError(f"run {run_id} has logged no policy", "Run its stage report again")
    except MlflowException as error:
        reason = str(error).partition("\n")[0][:160]
        raise ModelError(f"there is no model {uri} in MLflow ({reason})", "See the pages Models and Runs") from None
    raise ModelError(
        f"{uri} names no model", "Use models:/NAME@ALIAS, models:/NAME/VERSION, models:/m-ID or runs:/RUN_ID"
    )


def fetch_model(client: MlflowClient, uri: str, model_id: str, folder: Path) -> Path:
    """Return the model's files in `folder`, fetched once.

    Args:
        uri: tracking URI. model_id: see `resolve_model`.

    Raises:
        ModelError: the files cannot be had, or are no policy package.
    """
    if folder.is_dir():
        return read_package(folder).folder
    from mlflow.artifacts import download_artifacts

    folder.parent.mkdir(parents=True, exist_ok=True)
    location = client.get_logged_model(model_id).artifact_location
    with tempfile.TemporaryDirectory(prefix=f".{model_id}.", dir=folder.parent) as scratch:
        try:
            found = Path(download_artifacts(artifact_uri=location, dst_path=scratch, tracking_uri=uri))
        except Exception as error:  # whatever an object store's client raises
            raise ModelError(
                f"the files of model {model_id} cannot be fetched ({type(error).__name__})",
                "Check the server and its object store",
            ) from error
        read_package(found)
        shutil.move(str(found), folder)
    return folder


def _write_mlmodel(folder: Path, run_id: str, model_id: str) -> None:
    """Return the file that makes a folder an MLflow model: its signature, and how mlflow.pyfunc loads it."""
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array

    from codegrep import __version__
    from mlflow import pyfunc

    text = DataType.string
    inputs = [ColSpec(text, "problem_statement"), ColSpec(text, "repository"), ColSpec(text, "base_commit")]
    signature = ModelSignature(inputs=Schema([*inputs]), outputs=Schema([ColSpec(Array(text), "files")]))
    model = Model(run_id=run_id, signature=signature, model_id=model_id)
    pyfunc.add_to_model(model, loader_module=LOADER)
    model.add_flavor("codegrep", version=__version__, manifest="policy.json")
    model.save(str(folder / "MLmodel"))


def _of_version(version: Any, uri: str) -> str:
    model_id = version.tags.get(_ID) or version.model_id
    if not model_id:
        raise ModelError(f"{uri} was not logged by this project", "Register a policy that a run has logged")
    return str(model_id)


def _is_better(client: MlflowClient, name: str, alias: str, tags: Mapping[str, str]) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        now = client.get_model_version_by_alias(name, alias).tags
    except MlflowException:
        return True
    if _F05 not in tags or tags.get(_DATA) != now.get(_DATA):
        return False
    return float(tags[_F05]) > float(now.get(_F05, "-inf"))
