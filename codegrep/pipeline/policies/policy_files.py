"""Which folder holds which model of a run: the base, the warm-started one, and the adapter that was trained on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from codegrep.config import Config, ModelConfig
from codegrep.engines.models import PROVIDED, PROVIDED_PREFIX, PolicyFiles, provide
from codegrep.runtime.artifacts import Artifact, Places

_STAGES = {"warm_start": "warm_start", "trained": "train"}


def check_model(path: str) -> None:
    """Refuse a model folder that cannot be used before anything is started. What is yet to be made or fetched waits.

    Raises:
        ModelError: see codegrep.engines.models.provide.
    """
    later = {PROVIDED_PREFIX + name for name in PROVIDED}
    if path not in later and (Path(path).expanduser().exists() or path.count("/") != 1):
        provide(path)


def base_model(model: ModelConfig) -> Path:
    """Return the folder of the configured model, provided first if it is one that is made on this machine.

    Raises:
        ModelError: see codegrep.engines.models.provide.
    """
    return provide(model.path, revision=model.revision)


@dataclass(frozen=True)
class Policies:
    """The models of a run by their names: base, warm_start, trained, and loaded, which `evaluate.loaded` names.

    Attributes:
        config: of the run.
        places: where fetched models go.
        need: gives the artifact of an earlier stage, or raises CodegrepError where it is missing.
    """

    config: Config
    places: Places
    need: Callable[[str], Artifact]

    def identity(self, which: str) -> str | None:
        """Return a fingerprint of what the model was trained to; None for the base."""
        if which == "loaded":
            from codegrep.pipeline.policies.fetch import fetched

            return fetched(self.config, self.places).digest
        return self.need(_STAGES[which]).fingerprint if which in _STAGES else None

    def files(self, which: str) -> PolicyFiles:
        """Return the folders of a model and its adapter.

        Raises:
            CodegrepError: the stage that makes it has not run.
            ModelError: the model cannot be used.
        """
        if which == "loaded":
            from codegrep.pipeline.policies.fetch import fetched, policy_of

            package = fetched(self.config, self.places)
            return policy_of(package, self.places.artifacts, self.config.model.path)
        base = base_model(self.config.model)
        if which == "base":
            return PolicyFiles(base)
        merged = self.need("warm_start").folder / "model"
        started = merged if merged.is_dir() else base
        if which == "warm_start":
            return PolicyFiles(started)
        trained = self.need("train").folder
        if (trained / "model").is_dir():  # all weights were trained
            return PolicyFiles(trained / "model")
        return PolicyFiles(started, self.adapter("trained"))

    def adapter(self, which: str) -> Path | None:
        """Return the folder of the adapter that a stage left; None where it left none.

        Raises:
            CodegrepError: the stage has not run.
        """
        folder = self.need(_STAGES[which]).folder / "adapter"
        return folder if folder.is_dir() else None
