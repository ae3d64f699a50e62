"""Ray's Jobs API: a running Ray cluster with a dashboard, on machines of one's own or behind a port-forward."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

import codegrep
from codegrep.config import SubmitConfig
from codegrep.errors import ConfigError, InfrastructureError
from codegrep.submit.job import ClusterJob
from codegrep.submit.upload import upload_of

# A cluster that cannot be asked for so long is given up on; the job itself may go on.
PATIENCE_SECONDS = 600.0
YOUNG_SECONDS = 120.0  # in which a cluster that has just started is asked again
UNKNOWN = 75  # EX_TEMPFAIL: what became of the job could not be found out
REQUIRED = "CODEGREP_REQUIRED_VARIABLES"
_AGAIN_SECONDS = 2.0
_NO_AGENT = "No available agent"  # Ray's words for a head node whose agent does not answer yet


class JobsAPI:
    """A Target."""

    def __init__(self, settings: SubmitConfig) -> None:
        self._settings = settings
        self._address = settings.address

    def render(self, job: ClusterJob) -> str:
        """Return the request as YAML, with the size of what is sent along."""
        return yaml.safe_dump(self._request(job, self._sent()), sort_keys=False, width=100)

    def submit(self, job: ClusterJob) -> None:
        """Send the checkout and the request.

        Raises:
            ConfigError: too much would be sent, or token authentication is switched off.
            InfrastructureError: the cluster cannot be reached, or refuses.
        """
        with ExitStack() as stack:
            folder = None
            if self._settings.upload:
                upload = upload_of(Path(codegrep.__file__).parents[1], self._settings.excludes)
                upload.check(self._settings.max_upload_mib)
                folder = str(stack.enter_context(upload.copied()))
            client = self._client()
            request = self._request(job, folder)
            limit = time.monotonic() + YOUNG_SECONDS
            while True:
                try:
                    client.submit_job(**request)
                    return
                except Exception as error:
                    # A cluster that has just started has a dashboard before it has an agent that takes jobs.
                    if _NO_AGENT not in str(error) or time.monotonic() > limit:
                        raise self._trouble("did not take the job", error) from error
                time.sleep(_AGAIN_SECONDS)

    def follow(self, job_id: str) -> int:
        """Print the job's log until it ends, over broken connections too; return its exit code."""
        client = self._client()
        printed, asked = 0, time.monotonic()
        while True:
            try:
                printed = asyncio.run(self._tail(client, job_id, printed))
                info = client.get_job_info(job_id)
                asked = time.monotonic()
                if info.status.is_terminal():
                    return self._ended(client, job_id, info, printed)
            except (ConfigError, KeyboardInterrupt):
                raise
            except Exception as error:
                if "does not exist" in str(error):
                    raise self._trouble(f"has no job {job_id}", error) from error
                if time.monotonic() - asked > PATIENCE_SECONDS:
                    say(f"{job_id} cannot be asked about since {PATIENCE_SECONDS:.0f} s ({_first(error)})")
                    return UNKNOWN
            time.sleep(_AGAIN_SECONDS)

    def status(self, job_id: str) -> str:
        """Return the job's state in one line."""
        try:
            info = self._client().get_job_info(job_id)
        except Exception as error:
            raise self._trouble(f"cannot tell about {job_id}", error) from error
        code = "" if info.driver_exit_code is None else f", exit code {info.driver_exit_code}"
        return f"{info.status.value}{code}{f': {_first(info.message)}' if info.message else ''}"

    def stop(self, job_id: str) -> str:
        """Stop the job and wait for two minutes at most."""
        client = self._client()
        try:
            client.stop_job(job_id)
            limit = time.monotonic() + 120
            while not (status := client.get_job_status(job_id)).is_terminal() and time.monotonic() < limit:
                time.sleep(_AGAIN_SECONDS)
        except Exception as error:
            raise self._trouble(f"did not stop {job_id}", error) from error
        return status.value if status.is_terminal() else f"{status.value}: it has been told to stop, and has not yet"

    def _request(self, job: ClusterJob, folder: str | None) -> dict[str, Any]:
        settings = self._settings
        variables = dict(settings.env)
        if settings.secrets:
            variables[REQUIRED] = ",".join(sorted(settings.secrets))
        runtime: dict[str, Any] = {"env_vars": variables} if variables else {}
        if folder is not None:
            runtime["working_dir"] = folder
        return {
            "submission_id": job.id,
            "entrypoint": job.entrypoint,
            "runtime_env": runtime,
            "entrypoint_num_cpus": float(settings.options.get("entrypoint_cpus", 0)),
            "metadata": {"peak": str(job.request)},
        }

    def _sent(self) -> str | None:
        if not self._settings.upload:
            return None
        upload = upload_of(Path(codegrep.__file__).parents[1], self._settings.excludes)
        return f"{upload.root} ({len(upload.files)} files, {upload.bytes / 2**20:.2f} MiB)"

    def _client(self) -> Any:
        if any(self._settings.secrets.values()):
            raise ConfigError(
                "the Jobs API knows no references to secrets",
                "Set the variables in the cluster's own environment and give +cluster.submit.secrets.NAME=",
            )
        use_token()
        from ray.job_submission import JobSubmissionClient

        try:
            return JobSubmissionClient(self._address)
        except Exception as error:
            raise self._trouble("cannot be used", error) from error

    def _trouble(self, what: str, error: Exception) -> InfrastructureError:
        fix = "Check cluster.submit.address, and that the dashboard runs there"
        if "uthenticat" in str(error):
            fix = "Put the cluster's token into RAY_AUTH_TOKEN, or its file into RAY_AUTH_TOKEN_PATH"
        elif _NO_AGENT in str(error):
            fix = "Another Ray there may hold the port of its agent: ray start … --dashboard-agent-listen-port=0"
        return InfrastructureError(f"the cluster at {self._address} {what}: {_first(error)}", fix)

    async def _tail(self, client: Any, job_id: str, printed: int) -> int:
        """Print what is new of the log, which each connection sends whole; return the characters printed."""
        seen = 0
        async for text in client.tail_job_logs(job_id):
            new = text[max(0, printed - seen) :]
            seen += len(text)
            if new:
                sys.stdout.write(new)
                sys.stdout.flush()
                printed = seen
        return printed

    def _ended(self, client: Any, job_id: str, info: Any, printed: int) -> int:
        rest = client.get_job_logs(job_id)[printed:]  # what came between the last message and the end
        sys.stdout.write(rest)
        sys.stdout.flush()
        status = str(info.status.value)
        if status == "SUCCEEDED":
            return 0
        if info.message:
            say(f"{job_id} {status}: {_first(info.message)}")
        return exit_code(status, info.driver_exit_code)


def exit_code(status: str, driver: int | None) -> int:
    """Return the job's exit code where it is known; a job that did not succeed never gives 0."""
    if status == "SUCCEEDED":
        return 0
    if driver:
        return 128 - driver if driver < 0 else driver
    return {"STOPPED": 130}.get(status, 1)


def use_token() -> None:
    """Switch on token authentication, as Ray's own commands do where there is a token.

    Raises:
        ConfigError: it was switched off in the environment.
    """
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        raise ConfigError(
            "RAY_AUTH_MODE switches token authentication off: whoever reaches the cluster's port could run code on it",
            "Unset RAY_AUTH_MODE",
        )
    os.environ["RAY_AUTH_MODE"] = "token"
    import ray._raylet

    ray._raylet.Config.initialize("")  # type: ignore[attr-defined]  # Ray reads the variable once, when it is imported


def say(text: str) -> None:
    """Write one line to standard error, so that standard output is the job's log alone."""
    print(f"codegrep: {text}", file=sys.stderr)


def _first(error: object) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:300]
