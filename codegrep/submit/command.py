"""`python -m codegrep submit …`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from codegrep.compose import compose_overrides, load
from codegrep.config import Config
from codegrep.errors import ConfigError
from codegrep.hydra_settings import refuse_unread
from codegrep.overrides import typed_command
from codegrep.submit.job import Target, check_id, make_job, submit_settings

_EPILOG = """\
The arguments are those of a run; cluster= names where it goes:

  python -m codegrep submit +experiment=v3 scale=paper cluster=ray_job outputs=/shared/outputs
  python -m codegrep submit -m +experiment=v1,v2,v3 seed=0,1,2 cluster=kuberay outputs=/mnt/codegrep/outputs --dry-run
  python -m codegrep submit --status ID cluster=ray_job

The exit code is that of the job: 0 only when it succeeded, 75 when what became of it cannot be found out. Ctrl-C while
the log is followed leaves the job running; the same job is followed again with --follow ID and ended with --stop ID.
"""


def main(argv: list[str]) -> int:
    """Submit, follow, look at or end a job; _EPILOG explains the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m codegrep submit",
        description="Run an experiment, or a sweep, as a job on a cluster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", help="as for a run, with cluster=ray_job, kuberay or slurm")
    parser.add_argument("-m", "--multirun", action="store_true", help="submit a sweep as one job")
    parser.add_argument("--dry-run", action="store_true", help="show what would be submitted, and its size")
    parser.add_argument("--detach", action="store_true", help="return when the cluster has the job")
    parser.add_argument("--follow", metavar="ID", help="follow a job that was submitted before")
    parser.add_argument("--status", metavar="ID", help="one line about a job")
    parser.add_argument("--stop", metavar="ID", help="end a job")
    arguments = parser.parse_intermixed_args(argv)
    config = _config(arguments.overrides, arguments.multirun)
    target = target_of(config)
    if arguments.status:
        print(target.status(check_id(arguments.status)))
        return 0
    if arguments.stop:
        print(target.stop(check_id(arguments.stop)))
        return 0
    if arguments.follow:
        return _follow(target, check_id(arguments.follow), arguments.overrides)
    job = make_job(config, arguments.overrides, arguments.multirun)
    if arguments.dry_run:
        print(target.render(job), end="")
        return 0
    target.submit(job)
    print(f"codegrep: submitted {job.id}; it asks for {job.request}", file=sys.stderr)
    if arguments.detach:
        print(job.id)
        return 0
    return _follow(target, job.id, arguments.overrides)


def target_of(config: Config) -> Target:
    """Return the target that the cluster's configuration names.

    Raises:
        ConfigError: there is none, or it cannot be imported.
    """
    settings = submit_settings(config)
    module, _, name = settings.kind.rpartition(".")
    try:
        kind: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cluster.submit.kind={settings.kind} cannot be used: {error}", "Name a class") from None
    target: Target = kind(settings)
    return target


def _config(overrides: Sequence[str], multirun: bool) -> Config:
    """Compose the configuration of the run; of a sweep, that of its first job, since all go to one cluster."""
    if not multirun:
        refuse_unread(overrides, "Add -m; a search is set by sweep.*")
    return load(compose_overrides(overrides, first_of_many=multirun))


def _follow(target: Target, job_id: str, overrides: Sequence[str]) -> int:
    where = [o for o in overrides if o.startswith(("cluster=", "cluster."))]
    try:
        return target.follow(job_id)
    except KeyboardInterrupt:
        print(
            f"\ncodegrep: {job_id} goes on. Follow it: {typed_command(['submit', '--follow', job_id, *where])}\n"
            f"codegrep: end it: {typed_command(['submit', '--stop', job_id, *where])}",
            file=sys.stderr,
        )
        return 130
