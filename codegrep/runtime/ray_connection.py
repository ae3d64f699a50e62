"""How a run reaches Ray: it joins a cluster by address, or starts one sized to this machine and takes it down again."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codegrep.config import ClusterConfig
from codegrep.errors import ConfigError, InfrastructureError
from codegrep.runtime.native_output import native_output_to

# Workers must not ask a hub or send usage data; set before a worker starts, handed on by Ray to every worker.
WORKER_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads starve the engine beside them (2 against 50 tokens/s)
}


_SECONDS_TO_ANSWER = 10.0
_STARTS = 3


@contextmanager
def connected(cluster: ClusterConfig, log: Path) -> Iterator[None]:
    """Connect to Ray for the length of a block. Signals stay with the handlers that the caller has set.

    Args:
        cluster: of the configuration.
        log: file for what Ray's native code would write to the terminal.

    Raises:
        InfrastructureError: the address does not answer.
    """
    check_variables()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_TRAIN_ENABLE_V2", "1")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # Ray's 30 are too few on a busy machine
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 would put training behind everything else
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    already = ray.is_initialized()
    with native_output_to(log):
        try:
            if not already:
                with _own_signals():
                    _start_patiently(cluster)
            _quiet()
            yield
        finally:
            if not already:
                ray.shutdown()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM, which ray.init takes: for Python and, with a stack trace, for its native code."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:  # None: set by something that is not Python
            signal.signal(signal.SIGTERM, before)


def address() -> str:
    """Return where other drivers find the cluster of this process."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def _start_patiently(cluster: ClusterConfig) -> None:
    """Start Ray; a busy machine may need more than the half minute that Ray gives its own processes."""
    for _ in range(_STARTS - 1):
        try:
            return _start(cluster)
        except InfrastructureError as error:
            if cluster.address or "timed out" not in error.what:
                raise
    _start(cluster)


def _start(cluster: ClusterConfig) -> None:
    import ray

    environment = {"env_vars": dict(WORKER_ENVIRONMENT)}
    try:
        if cluster.address:
            _check_answers(cluster.address)
            ray.init(address=cluster.address, runtime_env=environment, logging_level=logging.ERROR, log_to_driver=False)
        else:
            ray.init(
                address="local",
                num_cpus=cluster.num_cpus,
                object_store_memory=int(cluster.object_store_gib * 2**30) or None,
                include_dashboard=False,
                runtime_env=environment,
                logging_level=logging.ERROR,
                log_to_driver=False,
                configure_logging=False,
            )
    except Exception as error:  # Ray raises plain Exception when its processes do not come up in time
        where = cluster.address or "this machine"
        raise InfrastructureError(
            f"Ray cannot be reached at {where}: {error}",
            "Check cluster.address and the token (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN_PATH), or use cluster=local",
        ) from None


def check_variables() -> None:
    """Check that the cluster's own environment holds the secrets that a submitted job names.

    Raises:
        ConfigError: one is not set.
    """
    named = [name for name in os.environ.get("CODEGREP_REQUIRED_VARIABLES", "").split(",") if name]
    if missing := [name for name in named if not os.environ.get(name)]:
        raise ConfigError(f"{', '.join(missing)} is not set on the cluster", "Set it in the environment of its nodes")


def _check_answers(address: str) -> None:
    """Fail at once where nothing listens: Ray itself goes on trying for a quarter of an hour."""
    plain = re.fullmatch(r"\[?([^\[\]/]+)\]?:(\d+)", address)
    if plain:
        with socket.create_connection((plain[1], int(plain[2])), timeout=_SECONDS_TO_ANSWER):
            pass


def _quiet() -> None:
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
