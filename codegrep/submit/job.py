"""One experiment as a job for a cluster: what is run there, with which variables, under which name."""

from __future__ import annotations

import re
import secrets as random_names
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from codegrep.config import Config, SubmitConfig
from codegrep.errors import ConfigError
from codegrep.overrides import command
from codegrep.runtime.resources import Request, request_of

_SECRET = re.compile(r"(SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_KEY)", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Kubernetes allows 63 characters, and KubeRay appends to the name.
_NAME_CHARS = 36


@dataclass(frozen=True)
class ClusterJob:
    """What is submitted.

    Attributes:
        id: unique, letters, digits and '-': names the job on the cluster.
        arguments: of `python -m codegrep` there.
        request: the peak of what the job asks the cluster for.
        settings: of the submission.
    """

    id: str
    arguments: tuple[str, ...]
    request: Request
    settings: SubmitConfig

    @property
    def entrypoint(self) -> str:
        """The command, quoted for a shell."""
        return command(self.arguments)


class Target(Protocol):
    """A kind of cluster. Every method raises CodegrepError in one line for what a person has to mend."""

    def __init__(self, settings: SubmitConfig) -> None: ...

    def render(self, job: ClusterJob) -> str:
        """Return what would be submitted, to be read and to be kept."""
        ...

    def submit(self, job: ClusterJob) -> None:
        """Hand the job over; return when the cluster has it."""
        ...

    def follow(self, job_id: str) -> int:
        """Print the job's log until it ends; return its exit code, never 0 for a job that cannot be asked about."""
        ...

    def status(self, job_id: str) -> str:
        """Return the job's state in one line."""
        ...

    def stop(self, job_id: str) -> str:
        """Ask the cluster to end the job; return one line on what came of it."""
        ...


def submit_settings(config: Config) -> SubmitConfig:
    """Return how a run gets to its cluster.

    Raises:
        ConfigError: it does not.
    """
    if config.cluster.submit is None:
        raise ConfigError(
            f"cluster={config.cluster.name} is no place to submit to", "Use cluster=ray_job, kuberay or slurm"
        )
    return config.cluster.submit


def make_job(config: Config, overrides: Sequence[str], multirun: bool = False) -> ClusterJob:
    """Make the job of a checked configuration.

    Raises:
        ConfigError: it cannot run there as it is.
    """
    settings = submit_settings(config)
    if not PurePosixPath(config.outputs).is_absolute() or "://" in config.outputs:
        raise ConfigError(
            f"outputs={config.outputs} means nothing on the cluster",
            "Give the absolute path of a folder all nodes share",
        )
    check_variables(settings)
    arguments = (*(["-m"] if multirun else []), *overrides)
    return ClusterJob(job_id(config.name), arguments, request_of(config), settings)


def check_variables(settings: SubmitConfig) -> None:
    """Refuse secrets by value.

    Raises:
        ConfigError: a variable has no possible name, or looks like a secret and is given in the open.
    """
    for name in (*settings.env, *settings.secrets):
        if not _VARIABLE.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a variable", "Use letters, digits and _")
    for name in settings.env:
        if _SECRET.search(name):
            raise ConfigError(
                f"cluster.submit.env.{name} looks like a secret; it would be shown in dashboards and manifests",
                f"Give a reference: +cluster.submit.secrets.{name}=…",
            )


def job_id(name: str) -> str:
    """Make a name that no other submission has, allowed by Kubernetes: lower case, digits and '-', a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[: _NAME_CHARS - 18].strip("-")
    return f"codegrep-{plain or 'run'}-{random_names.token_hex(4)}"


def check_id(text: str) -> str:
    """Return an id as the cluster knows it.

    Raises:
        ConfigError: it cannot be one.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", text):
        raise ConfigError(f"{text!r} cannot be the id of a job", "Give it as submit printed it")
    return text
