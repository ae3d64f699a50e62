"""One experiment, or a sweep of them: Hydra composes the configuration, the pipeline runs it.

Nothing else of the project is imported before the configuration is composed, so that `--cfg job` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from codegrep.conf_folder import CONF
from codegrep.ending import end


def start() -> None:
    """Let Hydra read the command line and run what it says."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors come up to the caller instead of a trace printed by Hydra
    _register_launcher()
    _run()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _run(cfg: DictConfig) -> None:
    from codegrep.compose import cautions, load
    from codegrep.hydra_settings import passed_on, refuse_unread
    from codegrep.issues.load import check_sources

    hydra_node = HydraConfig.get()
    try:
        config = load(cfg)
        if cfg.model.dtype == "auto" and config.model.dtype == "float32" and not config.train.full_parameters:
            print("codegrep: note: model.dtype=auto is float32: this CPU has no bfloat16 instructions", file=sys.stderr)
        for caution in cautions(config):
            print(f"codegrep: note: {caution}", file=sys.stderr)
        if hydra_node.mode != RunMode.MULTIRUN:
            refuse_unread(hydra_node.overrides.hydra, "Add -m; a search is set by sweep.*")
        if config.sweep is not None:
            from codegrep.sweeps.search import search

            search(config, hydra_node.overrides.task, passed_on(cast(DictConfig, hydra_node)))
            return
        if "prepare" in config.stages:
            check_sources(config.data)
        from codegrep.pipeline.run import run_experiment  # heavy: only once the configuration is known to be good

        run_experiment(config, experiment=str(hydra_node.runtime.choices.get("experiment") or ""))
    except (Exception, KeyboardInterrupt) as error:
        if hydra_node.mode == RunMode.MULTIRUN:  # one of Hydra's own launchers: it goes on with its other jobs
            raise
        end(error)  # here, since Hydra adds a line to what comes up to it


def _register_launcher() -> None:
    """For sweeps. Hydra finds it by itself in a checkout and in a wheel, but not in every kind of editable install."""
    if not {"-m", "--multirun"} & set(sys.argv):
        return
    from hydra.core.plugins import Plugins

    from hydra_plugins.codegrep_ray import RayLauncher

    plugins = Plugins.instance()
    if f"{RayLauncher.__module__}.{RayLauncher.__name__}" not in plugins.class_name_to_class:
        plugins.register(RayLauncher)
