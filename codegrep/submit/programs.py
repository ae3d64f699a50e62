"""Runs a cluster's own command line program (kubectl, sbatch …)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from codegrep.errors import InfrastructureError


def run(command: Sequence[str], stdin: str = "", timeout: float = 120.0) -> str:
    """Return the standard output of a command that ends by itself.

    Raises:
        InfrastructureError: it is not installed, fails, or takes longer than `timeout` seconds.
    """
    name = command[0]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
    except FileNotFoundError:
        raise InfrastructureError(
            f"{name} is not installed here", "Install it, or use --dry-run and hand it over"
        ) from None
    except subprocess.TimeoutExpired:
        raise InfrastructureError(f"{name} {command[1]} took longer than {timeout:.0f} s") from None
    if done.returncode:
        last = done.stderr.strip().split("\n")[-1] or f"exit code {done.returncode}"
        raise InfrastructureError(f"{name} {command[1]} failed: {last[:300]}")
    return done.stdout


def follow(command: Sequence[str]) -> None:
    """Run a command that prints to this terminal until it ends; its exit code says nothing about the job."""
    try:
        subprocess.run(command, check=False)
    except FileNotFoundError:
        raise InfrastructureError(f"{command[0]} is not installed here", "Install it") from None
