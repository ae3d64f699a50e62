"""`python -m codegrep evaluate model=models:/…`: a policy from MLflow on held-out issues, beside the baselines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from codegrep.compose import compose_overrides, load
from codegrep.conf_folder import CONF
from codegrep.errors import ConfigError
from codegrep.hydra_settings import refuse_in_command

# Groups that are taken from the run that trained the policy, unless they are named on the command line.
_RECORDED = ("agent", "tools", "data", "model")

_EPILOG = """
examples:
  python -m codegrep evaluate model=v3-seed0-1a2b3c4d
  python -m codegrep evaluate model=models:/codegrep-retriever@best
  python -m codegrep evaluate model=models:/codegrep-retriever/3 data=git_history data.sources.git_history.args.path=.
  python -m codegrep evaluate model=runs:/4f1c…  evaluate.retrievers=[bm25_no_tests]

The policy is put together from the adapters in MLflow and the base model that they name; the agent, the tools and the
data are those of its training unless others are named. Everything else are overrides as for an experiment.
"""


def main(argv: list[str]) -> int:
    """Run the command; return the exit code.

    Raises:
        CodegrepError: no such model, or the evaluation cannot run.
    """
    model, overrides = _parse(argv)
    refuse_in_command(overrides)
    composed = compose_overrides(overrides)
    chosen = load(composed)
    from codegrep.pipeline.policies.fetch import fetch_package
    from codegrep.pipeline.run import run_experiment
    from codegrep.runtime.artifacts import Places
    from codegrep.tracking import store
    from codegrep.tracking.identity import policy_named

    uri, _ = store.resolve(chosen.tracking, chosen.outputs_path)
    named = policy_named(store.connect(uri), model, chosen.outputs_path)
    package = fetch_package(uri, named, Places(chosen.outputs_path).artifacts)
    _take_recorded(composed, package.config, overrides)
    # The id in place of an alias: what is measured does not change when the alias moves.
    OmegaConf.update(
        composed, "evaluate.loaded", f"models:/{package.folder.name.removeprefix('fetched-')}", force_add=True
    )
    composed.evaluate.models = ["loaded"]
    composed.stages = ["prepare", "evaluate", "report"]
    if not any(override.startswith("name=") for override in overrides):
        composed.name = "evaluate"
    run_experiment(load(composed), experiment="")
    return 0


def _parse(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return the model's URI and the overrides."""
    parser = argparse.ArgumentParser(
        prog="python -m codegrep evaluate",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="+", metavar="model=RUN | KEY=VALUE")
    words = parser.parse_args(argv).overrides
    bases = [f"model={path.stem}" for path in (CONF / "model").glob("*.yaml")]
    models = [word.removeprefix("model=") for word in words if word.startswith("model=") and word not in bases]
    if len(models) != 1:
        raise ConfigError(
            "the model to evaluate is not named" if not models else "more than one model is named",
            "Give model=RUN (a folder name or id), models:/NAME@ALIAS, models:/NAME/VERSION or models:/m-ID",
        )
    return models[0], [word for word in words if word != f"model={models[0]}"]


def _take_recorded(composed: DictConfig, recorded: Any, overrides: Sequence[str]) -> None:
    """Put the recorded settings in place of the defaults; what the command line names keeps its value."""
    keys = [override.lstrip("+~").partition("=")[0] for override in overrides]
    named = {key: OmegaConf.select(composed, key) for key in keys if "." in key}
    for group in _RECORDED:
        if group in recorded and group not in keys:
            composed[group] = recorded[group]
    for key, value in named.items():
        OmegaConf.update(composed, key, value, force_add=True)
