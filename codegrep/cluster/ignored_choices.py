"""A launcher or sweeper that is set where Hydra does not look: caught instead of ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from codegrep.errors import ConfigError

_READ_FIRST = ("hydra/launcher", "hydra/sweeper")


def refuse_ignored_choices(sweep: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """Compare what the sweep uses with what a job's configuration claims.

    Hydra chooses launcher and sweeper before it composes the jobs. One that is set in an experiment file is then ignored
    when the sweep has several experiments, while each job's `hydra.runtime.choices` names it.

    Raises:
        ConfigError: they differ; it says what to type.
    """
    for group in _READ_FIRST:
        used, claimed = sweep.get(group), job.get(group)
        if claimed is not None and claimed != used:
            raise ConfigError(
                f"{group}={claimed} is set inside a file of this sweep, where Hydra ignores it: {used} is in use",
                f"Take it out of the file and type {group}={claimed} on the command line",
            )


class IgnoredChoices(Callback):
    """The same check under Hydra's own launchers, which run jobs in this process."""

    def __init__(self) -> None:
        self._sweep: Mapping[str, Any] | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """See Callback."""
        self._sweep = dict(config.hydra.runtime.choices)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """See Callback."""
        if self._sweep is not None:
            refuse_ignored_choices(self._sweep, HydraConfig.get().runtime.choices)
