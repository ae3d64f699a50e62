"""The sandbox actors of a run, started once and shared by every stage."""

from __future__ import annotations

from typing import Any

from codegrep.config import Config, ToolsConfig
from codegrep.pipeline.prepared import Prepared
from codegrep.retrievers.indexed import shipped_index
from codegrep.runtime.artifacts import Places
from codegrep.sandbox.actor import RemoteSandbox, start_sandboxes


def tools_inputs(tools: ToolsConfig) -> dict[str, Any]:
    """Return what decides the answers of the tools, for a stage's fingerprint: settings, and the index of `search`."""
    return {"tools": tools, **({"index": shipped_index()} if "search" in tools.names else {})}


class Sandboxes:
    """Starts the sandbox actors when they are first asked for; they end with the run's Ray."""

    def __init__(self, config: Config, places: Places, prepared: Prepared) -> None:
        self._config, self._places, self._prepared = config, places, prepared
        self._started: RemoteSandbox | None = None

    def start(self) -> RemoteSandbox:
        """Return a handle on the actors; it can be sent to other Ray workers."""
        if self._started is None:
            config, locations = self._config, self._prepared.locations
            self._started = start_sandboxes(
                config.sandbox.actors, self._places.sandbox, config.tools, config.sandbox, locations
            )
        return self._started
