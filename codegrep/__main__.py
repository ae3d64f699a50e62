"""`python -m codegrep +experiment=v3`: Hydra composes the configuration, the pipeline runs it.

`python -m codegrep NAME …` runs a command of codegrep/cli.py instead.

Nothing heavy is imported before the configuration has been composed and checked, so that --help and --cfg answer at
once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from codegrep import cli
from codegrep.compose import CONF, cautions, explain, load
from codegrep.errors import CodegrepError, ConfigError, disk_error
from codegrep.hydra_settings import passed_on, refuse_unread
from codegrep.usage import usage


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _run(cfg: DictConfig) -> None:
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
        from codegrep.pipeline.run import run_experiment  # heavy: only once the configuration is known to be good

        run_experiment(config, experiment=str(hydra_node.runtime.choices.get("experiment") or ""))
    except (Exception, KeyboardInterrupt) as error:
        if hydra_node.mode == RunMode.MULTIRUN:  # one of Hydra's own launchers: it goes on with its other jobs
            raise
        _exit(error)  # here, since Hydra adds a line to what comes up to it


def _register_launcher() -> None:
    """For sweeps. Hydra finds it by itself in a checkout and in a wheel, but not in every kind of editable install."""
    if not {"-m", "--multirun"} & set(sys.argv):
        return
    from hydra.core.plugins import Plugins

    from hydra_plugins.codegrep_ray import RayLauncher

    plugins = Plugins.instance()
    if f"{RayLauncher.__module__}.{RayLauncher.__name__}" not in plugins.class_name_to_class:
        plugins.register(RayLauncher)


def main() -> None:
    """Entry point of `python -m codegrep` and of the console script."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors come up to here instead of a trace printed by Hydra
    if len(sys.argv) > 1 and not Path(CONF).is_dir():
        print(f"codegrep: the configuration folder is missing beside the package ({CONF})", file=sys.stderr)
        sys.exit(2)
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(usage(CONF))
        return
    command = cli.named(first)
    try:
        if command is not None:
            sys.exit(cli.run(command, sys.argv[2:]))
        if near := cli.mistyped(first):
            raise ConfigError(f"there is no command '{first}'", f"Did you mean {near}?")
        _register_launcher()
        _run()
    except (Exception, KeyboardInterrupt) as error:
        _exit(error)


def _exit(error: BaseException) -> NoReturn:
    """End with one line for people; a mistake in the code is raised again, since its trace is wanted."""
    if isinstance(error, KeyboardInterrupt):
        sys.exit(130)
    line: CodegrepError | None = disk_error(error)
    if line is None and isinstance(error, HydraException | OmegaConfBaseException | YAMLError | ValueError):
        line = explain(error)
    if line is None and not isinstance(error, CodegrepError):
        raise error
    print(f"codegrep: {line or error}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
