"""A policy that was logged as an MLflow model, put together again: base + warm start, merged, + adapter."""

from __future__ import annotations

import shutil
from pathlib import Path

from codegrep.config import Config
from codegrep.config.reading import checked
from codegrep.engines.models import PolicyFiles, provide
from codegrep.errors import ConfigError, InfrastructureError, ModelError
from codegrep.runtime.artifacts import Places
from codegrep.tracking import store
from codegrep.tracking.parameters import masked_text
from codegrep.tracking.policy_package import PolicyPackage, model_checksum, read_package
from codegrep.tracking.registry import fetch_model, resolve_model


def fetched(config: Config, places: Places) -> PolicyPackage:
    """Return the package that `evaluate.loaded` names, fetched into the outputs once.

    Raises:
        ModelError: no such model.
        InfrastructureError: MLflow cannot be reached.
    """
    uri, _ = store.resolve(config.tracking, places.outputs)
    model_uri = config.evaluate.loaded or ""
    folder = places.artifacts / f"fetched-{model_uri.rpartition('/')[2]}"
    if model_uri.startswith("models:/m-") and folder.is_dir():  # the id never means anything else: no server needed
        return read_package(folder)
    return fetch_package(uri, model_uri, places.artifacts)


def fetch_package(uri: str, model_uri: str, artifacts: Path) -> PolicyPackage:
    """Fetch the package behind a model URI to `<artifacts>/fetched-<model id>`.

    Raises:
        ModelError: no such model.
        InfrastructureError: MLflow cannot be reached.
    """
    try:
        client = store.connect(uri)
        model_id = resolve_model(client, model_uri)
        return read_package(fetch_model(client, uri, model_id, artifacts / f"fetched-{model_id}"))
    except (ModelError, ImportError):
        raise
    except Exception as error:  # whatever a client, a driver or a network can raise
        raise InfrastructureError(
            f"MLflow cannot be read at {masked_text(uri)} ({type(error).__name__})",
            "Start the server, or check tracking.uri",
        ) from error


def policy_of(package: PolicyPackage, artifacts: Path, base: str = "") -> PolicyFiles:
    """Return the policy's files; the merged model is made once, as `<artifacts>/loaded-<digest>`.

    Args:
        package: of the policy.
        artifacts: folder of the outputs.
        base: folder or hub id to take instead of the one in the package, which may be a folder of another machine.

    Raises:
        ModelError: the base is not here, or it is another model than the adapters were trained on.
    """
    reference = package.base
    folder = provide(base or reference.path, revision=reference.revision)
    if model_checksum(folder) != reference.checksum:
        raise ModelError(
            f"the model in {folder} is not the one that this policy was trained on ({reference.path})",
            "Name the right one with model.path=",
        )
    if package.warm_start is None:
        return PolicyFiles(folder, package.adapter)
    merged = artifacts / f"loaded-{package.digest[:12]}"
    if not (merged / "config.json").is_file():
        from codegrep.training.lora import merge_adapter  # torch: only when it has to be made

        partial = merged.with_name(f".{merged.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        merge_adapter(str(folder), package.warm_start, partial, reference.dtype)
        shutil.rmtree(merged, ignore_errors=True)
        partial.rename(merged)
    return PolicyFiles(merged, package.adapter)


def recorded_config(package: PolicyPackage) -> Config:
    """Return the configuration of the run that trained a policy.

    Raises:
        ModelError: it is not one of this version.
    """
    try:
        return checked(Config, package.config)
    except ConfigError as error:
        raise ModelError(f"the configuration of the policy is not one of this version ({error.what})") from None
