"""Tools for tests, named by their dotted names as a user's own tool would be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from codegrep.config import ToolsConfig
from codegrep.protocol.calls import ToolStatus
from codegrep.sandbox import Outcome
from codegrep.sandbox.tools.arguments import check_arguments
from codegrep.sandbox.tools.tool import Argument


class Meet:
    """Answers only when `parties` calls are inside at the same time."""

    name = "meet"
    description = "Wait for the others."
    parameters: ClassVar[Mapping[str, Any]] = {
        "properties": {
            "place": {"type": "integer", "description": "which call this is"},
            "parties": {"type": "integer", "description": "how many have to be there"},
        },
        "required": ["place", "parties"],
    }

    def __init__(self, limits: ToolsConfig) -> None:
        self.inside = 0
        self.most = 0
        self.runs = 0
        self.cancelled = 0
        self._changed = asyncio.Condition()

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Argument]:
        return check_arguments(self.parameters, {}, arguments)

    async def run(self, root: Path, arguments: Mapping[str, Argument]) -> Outcome:
        parties = int(arguments["parties"] or 0)
        self.inside += 1
        self.runs += 1
        self.most = max(self.most, self.inside)
        try:
            async with self._changed:
                self._changed.notify_all()
                await asyncio.wait_for(self._changed.wait_for(lambda: self.most >= parties), 20)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1
        return Outcome(ToolStatus.OK, f"{arguments['place']} met {parties}")


class Breaks(Meet):
    """Has a bug."""

    name = "breaks"

    async def run(self, root: Path, arguments: Mapping[str, Argument]) -> Outcome:
        raise KeyError("a bug")


class Talks(Meet):
    """Says too much."""

    name = "talks"

    async def run(self, root: Path, arguments: Mapping[str, Argument]) -> Outcome:
        return Outcome(ToolStatus.OK, "x" * 100_000)
