"""`python -m codegrep register RUN NAME`: name the policy of a run in MLflow's registry, and move an alias to it."""

from __future__ import annotations

import argparse
from pathlib import Path

from codegrep.errors import ConfigError, InfrastructureError
from codegrep.tracking import identity, store
from codegrep.tracking.parameters import masked_text
from codegrep.tracking.registry import BEST, register, resolve_model


def main(argv: list[str]) -> int:
    """Entry point; the exit code.

    Raises:
        CodegrepError: the run has no policy, or MLflow cannot be reached.
    """
    parser = argparse.ArgumentParser(prog="python -m codegrep register", description=__doc__)
    parser.add_argument(
        "run", help="name of a run's folder, MLflow run id or its first digits, runs:/ID, or models:/m-ID"
    )
    parser.add_argument("name", help="registered model, made when it is new")
    parser.add_argument("--alias", default=BEST, help="alias that is moved to it (default: best); '' moves none")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="outputs folder (default: outputs)")
    parser.add_argument("--uri", default="", help="MLflow tracking URI (default: the SQLite file under OUTPUTS)")
    options = parser.parse_args(argv)
    if not options.uri and not (options.outputs / "mlflow.db").is_file():
        raise ConfigError(
            f"there is no mlflow.db in {options.outputs}", "Name it with --outputs, or a server with --uri"
        )
    uri = options.uri or store.sqlite_uri(options.outputs)
    from mlflow.exceptions import MlflowException

    try:
        client = store.connect(uri)
        model_id = resolve_model(client, identity.policy_named(client, options.run, options.outputs))
        version = register(client, model_id, options.name, alias=options.alias)
    except MlflowException as error:
        reason = masked_text(str(error)).partition("\n")[0][:200]
        raise InfrastructureError(f"MLflow at {masked_text(uri)} refuses: {reason}", "") from error
    print(f"{options.name} version {version} is model {model_id}")
    if options.alias:
        print(f"evaluate it: python -m codegrep evaluate model=models:/{options.name}@{options.alias}")
    return 0
