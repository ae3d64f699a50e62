"""A launcher or sweeper that is set where Hydra does not look: caught instead of ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra._internal.config_repository import IConfigRepository
from hydra.core.default_element import GroupDefault

from codegrep.errors import ConfigError

_READ_FIRST = ("hydra/launcher", "hydra/sweeper")


def choices_in_files(repository: IConfigRepository, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Launcher and sweeper that the chosen files of a job (experiment, scale, …) set in their own defaults lists.

    The primary configuration's choice wins over a file's without a word, so that the composed job does not show it.
    """
    found: dict[str, Any] = {}
    for group, value in choices.items():
        if not isinstance(value, str) or group.startswith("hydra/"):
            continue
        loaded = repository.load_config(f"{group}/{value}")
        for default in (loaded.defaults_list if loaded else None) or ():
            if isinstance(default, GroupDefault) and (default.group or "").lstrip("/") in _READ_FIRST:
                found[str(default.group).lstrip("/")] = default.value
    return found


def refuse_ignored_choices(sweep: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """Compare what the sweep uses with what a job's configuration claims.

    Hydra chooses launcher and sweeper before it composes the jobs. One that is set in an experiment file is then
    ignored when the sweep has several experiments, while each job's `hydra.runtime.choices` names it.

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
