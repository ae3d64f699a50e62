"""The place in which Hydra looks for launchers; the launcher itself is codegrep.sweeps.launcher.

Hydra takes plugins from the namespace `hydra_plugins` only and imports every module in it at each start, so this one
must stay light.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class RayLauncher(Launcher):
    """Runs `python -m codegrep -m …` as a queue on Ray; conf/hydra/launcher/ray.yaml explains the arguments."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._config: DictConfig | None = None
        self._context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra has composed."""
        self._config, self._context = config, hydra_context

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs."""
        from codegrep.sweeps.launcher import launch
        from codegrep.sweeps.sweep import LauncherSettings

        assert self._config is not None and self._context is not None
        settings = LauncherSettings(**self._settings)
        return launch(self._config, self._context, settings, job_overrides, initial_job_idx)
