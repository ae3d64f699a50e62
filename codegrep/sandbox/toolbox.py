"""The tools of a run by name: what the model is told about them, and one call on one tree."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from codegrep.config import ToolsConfig
from codegrep.errors import CodegrepError, ConfigError
from codegrep.named import named_class
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult, ToolStatus
from codegrep.sandbox.tools import ArgumentError, Outcome, SearchPrograms, Tool
from codegrep.sandbox.tools.tool import Argument, fault, mistake

_log = logging.getLogger(__name__)
_CUT = " [cut]"
# Imported when they are named: an index needs more than the other tools do.
_NAMES = {
    "grep": "codegrep.sandbox.tools.Grep",
    "glob": "codegrep.sandbox.tools.Glob",
    "read": "codegrep.sandbox.tools.Read",
    "search": "codegrep.sandbox.tools.semantic.Search",
}


@dataclass(frozen=True)
class CheckedCall:
    """A call whose tool exists and whose arguments are right. key: canonical text of tool and arguments."""

    tool: Tool
    arguments: dict[str, Argument]
    key: str


class Toolbox:
    """The tools named in the configuration.

    Args:
        limits: caps and deadlines; `names` holds names of _NAMES or dotted names of classes that meet Tool.
        programs: the search programs; found by itself when None.
        index_folder: where the tool `search` keeps its indexes; a temporary folder when None.

    Raises:
        ConfigError: a name that is no tool.
    """

    def __init__(
        self, limits: ToolsConfig, programs: SearchPrograms | None = None, index_folder: Path | None = None
    ) -> None:
        self.limits = limits
        offered = {"programs": programs or SearchPrograms(most=limits.concurrency), "index_folder": index_folder}
        tools = [_make(name, limits, offered) for name in limits.names]
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise ConfigError(f"tools.names={limits.names} names a tool twice", "Leave one of them out.")

    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools as function schemas (the JSON form that chat templates take)."""
        return [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
            for t in self._tools.values()
        ]

    def check(self, call: ToolCall) -> CheckedCall:
        """Return the call, ready to be run.

        Raises:
            ArgumentError: unknown tool or arguments that cannot be used, in words for the model.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            raise ArgumentError(f"there is no tool {ascii(call.name)[:60]} (tools: {', '.join(self._tools)})")
        arguments = tool.check(call.arguments)
        return CheckedCall(tool, arguments, json.dumps([tool.name, arguments], sort_keys=True))

    async def execute(self, root: Path, call: CheckedCall) -> Outcome:
        """Run a checked call.

        Whatever goes wrong inside a tool becomes an infrastructure outcome; cancelling passes.
        """
        try:
            outcome = await call.tool.run(root, call.arguments)
        except Exception as error:
            _log.exception("%s failed", call.tool.name)
            return fault(f"{call.tool.name} failed ({type(error).__name__})")
        return self._capped(outcome)

    async def run(self, root: Path, call: ToolCall, number: int) -> ToolResult:
        """Run one call on the tree at `root`; never raises for what the model wrote."""
        began = time.monotonic()
        try:
            outcome = await self.execute(root, self.check(call))
        except ArgumentError as error:
            outcome = mistake(str(error))
        return self.result(outcome, call, number, time.monotonic() - began)

    def unexecuted(self, call: ToolCall | MalformedCall, number: int) -> ToolResult:
        """Return the result of a call beyond the cap of a turn, or of one that cannot be read."""
        if number > self.limits.max_calls:
            text = f"ERROR: not executed, at most {self.limits.max_calls} calls a turn are allowed"
            return self.result(Outcome(ToolStatus.REFUSED, text), call, number)
        assert isinstance(call, MalformedCall)
        return self.result(mistake(f"the call cannot be read: {call.reason}"), call, number)

    def result(self, outcome: Outcome, call: ToolCall | MalformedCall, number: int, seconds: float = 0.0) -> ToolResult:
        """Return an outcome, at most `max_chars` long, as the result of the call at its place in the turn."""
        capped = self._capped(outcome)
        return ToolResult(
            number, call, capped.status, capped.text, capped.files, capped.truncated, seconds, capped.files_found
        )

    def _capped(self, outcome: Outcome) -> Outcome:
        limit = self.limits.max_chars
        if len(outcome.text) <= limit:
            return outcome
        text = (outcome.text[: max(0, limit - len(_CUT))] + _CUT)[:limit]
        return dataclasses.replace(outcome, text=text, truncated=True)


def _make(name: str, limits: ToolsConfig, offered: Mapping[str, object]) -> Tool:
    kind: Callable[..., Any] = named_class(_NAMES.get(name, name), "tools.names:", "run", "tool")
    try:
        taken = inspect.signature(kind).parameters
        return cast(Tool, kind(limits, **{name: value for name, value in offered.items() if name in taken}))
    except CodegrepError:
        raise
    except Exception as error:
        raise ConfigError(f"tools.names: {name} cannot be made ({error})", "Check its arguments.") from error
