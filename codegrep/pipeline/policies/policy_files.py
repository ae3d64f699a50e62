"""Which folder holds which model of a run: the base, the warm-started one, and the adapter that was trained on it."""

from __future__ import annotations

from pathlib import Path

from codegrep.engines.models import PROVIDED, PROVIDED_PREFIX, PolicyFiles, provide
from codegrep.pipeline.context import Context


def check_model(path: str) -> None:
    """Refuse a model folder that cannot be used before anything is started. What is yet to be made or fetched waits.

    Raises:
        ModelError: see codegrep.engines.models.provide.
    """
    later = {PROVIDED_PREFIX + name for name in PROVIDED}
    if path not in later and (Path(path).expanduser().exists() or path.count("/") != 1):
        provide(path)


def base_model(context: Context) -> Path:
    """Folder of the configured model, provided first if it is one that is made on this machine.

    Raises:
        ModelError: see codegrep.engines.models.provide.
    """
    return provide(context.config.model.path, revision=context.config.model.revision)


def policy_files(context: Context, which: str) -> PolicyFiles:
    """Files of "base", "warm_start", "trained", or of "loaded", the one in MLflow that `evaluate.loaded` names."""
    if which == "loaded":
        from codegrep.pipeline.policies.fetch import fetched, policy_of

        return policy_of(fetched(context), context.places.artifacts, context.config.model.path)
    base = base_model(context)
    if which == "base":
        return PolicyFiles(base)
    warm = context.need("warm_start")
    folder = warm.folder / "model"
    started = PolicyFiles(folder if folder.is_dir() else base)
    if which == "warm_start":
        return started
    trained = context.need("train")
    if (trained.folder / "model").is_dir():  # all weights were trained
        return PolicyFiles(trained.folder / "model")
    adapter = trained.folder / "adapter"
    return PolicyFiles(started.model, adapter if adapter.is_dir() else None)
