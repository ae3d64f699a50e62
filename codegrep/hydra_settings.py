"""Which of Hydra's own settings (hydra.*) are read by whom, and an error for what nobody would read.

In a sweep Hydra reads `hydra.launcher`, `hydra.sweeper` and `hydra.sweep` once, before it composes the jobs. Everything
else is read by the process of each job, as in a single run, so that what was typed for it goes along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra._internal.config_repository import IConfigRepository
from hydra.core.default_element import GroupDefault
from omegaconf import DictConfig, OmegaConf

from codegrep.errors import ConfigError
from codegrep.overrides import override as written

_READ_FIRST = ("launcher", "sweeper", "sweep")
_GROUPS = ("hydra/launcher", "hydra/sweeper")


@dataclass(frozen=True)
class PassedOn:
    """What the processes of a sweep or search get of its command line beside ordinary overrides.

    Attributes:
        options: --config-dir.
        overrides: hydra.*.
    """

    options: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


def passed_on(hydra: DictConfig) -> PassedOn:
    """Read it off the `hydra` node of a sweep or search as a whole."""
    folders = [s.path for s in hydra.runtime.config_sources if s.provider == "command-line" and s.schema == "file"]
    options = tuple(part for folder in folders for part in ("--config-dir", folder))
    return PassedOn(options, tuple(o for o in hydra.overrides.hydra if not _read_first(o) and _key(o) != "hydra.mode"))


def refuse_unread(overrides: Sequence[str], instead: str) -> None:
    """Refuse what is typed for a sweep where there is none.

    Args:
        overrides: of Hydra's own settings, as they were typed.
        instead: what to do.

    Raises:
        ConfigError: one of them is read in sweeps only.
    """
    for override in overrides:
        if _read_first(override):
            raise ConfigError(f"{_key(override)} is read in sweeps (-m) only", instead)


def refuse_in_command(overrides: Sequence[str]) -> None:
    """Refuse Hydra's own settings for a command that composes a configuration and is no run of Hydra.

    Raises:
        ConfigError: one of them is set; only hydra.searchpath is read there.
    """
    for override in overrides:
        key = _key(override)
        if key.replace("/", ".").startswith("hydra.") and key != "hydra.searchpath":
            raise ConfigError(f"{key} is read in runs and sweeps only", "Leave it out")


def choices_in_files(repository: IConfigRepository, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return launcher and sweeper that the files of a job (experiment, scale, …) set in their own defaults lists.

    The primary configuration's choice wins over a file's without a word, so that the composed job does not show it.
    """
    chosen: dict[str, Any] = {}
    for group, value in choices.items():
        if not isinstance(value, str) or group.startswith("hydra/"):
            continue
        loaded = repository.load_config(f"{group}/{value}")
        for default in (loaded.defaults_list if loaded else None) or ():
            if isinstance(default, GroupDefault) and (default.group or "").lstrip("/") in _GROUPS:
                chosen[str(default.group).lstrip("/")] = default.value
    return chosen


def refuse_ignored_choices(sweep: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    """Compare what the sweep uses with what a job's configuration claims.

    Hydra chooses launcher and sweeper before it composes the jobs. One that is set in an experiment file is then
    ignored when the sweep has several experiments, while each job's `hydra.runtime.choices` names it.

    Raises:
        ConfigError: they differ; it says what to type.
    """
    for group in _GROUPS:
        used, claimed = sweep.get(group), job.get(group)
        if claimed is not None and claimed != used:
            raise ConfigError(
                f"{group}={claimed} is set inside a file of this sweep, where Hydra ignores it: {used} is in use",
                f"Take it out of the file and type {group}={claimed} on the command line",
            )


def refuse_ignored_settings(sweep: DictConfig, job: DictConfig) -> None:
    """Compare single settings of a sweep with what a job's configuration claims.

    Args:
        sweep: the `hydra` node that is in use.
        job: that of a job.

    Raises:
        ConfigError: they differ in a setting of which only the sweep's own is read.
    """
    for node in _READ_FIRST:
        used, claimed = _leaves(sweep.get(node), f"hydra.{node}"), _leaves(job.get(node), f"hydra.{node}")
        for key in [*claimed, *used]:
            if claimed.get(key) != used.get(key):
                typed = written(key if key in used else f"+{key}", claimed.get(key))
                raise ConfigError(
                    f"{key} is set inside a file of this sweep, where Hydra ignores it: {used.get(key)} is in use",
                    f"Take it out of the file and type {typed} on the command line",
                )


def _leaves(node: Any, prefix: str) -> dict[str, Any]:
    if not isinstance(node, DictConfig):
        return {prefix: node}
    plain: Any = OmegaConf.to_container(node, resolve=False)
    leaves: dict[str, Any] = {}
    for key, value in plain.items():
        leaves |= _leaves(OmegaConf.create(value) if isinstance(value, dict) else value, f"{prefix}.{key}")
    return leaves


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _read_first(override: str) -> bool:
    parts = _key(override).replace("/", ".").split(".")
    return len(parts) > 1 and parts[0] == "hydra" and parts[1].partition("@")[0] in _READ_FIRST
