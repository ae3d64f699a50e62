"""What the loop's own tests stand on: an in-memory sandbox and an engine that says given texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from codegrep.config import AgentConfig, SearchToolConfig, ToolsConfig
from codegrep.engines.engine import Generation, GenerationRequest
from codegrep.errors import RepositoryError
from codegrep.issues.issue import Issue
from codegrep.protocol.calls import FileMatches, MalformedCall, ToolCall, ToolResult, ToolStatus
from codegrep.protocol.chat import ChatFormat

GREP = '<tool_call>\n{"name": "grep", "arguments": {"pattern": "x"}}\n</tool_call>'
ANSWER = '<answer>{"files": ["a.py"]}</answer>'
ISSUE = Issue("o__r-1", "o/r", "c" * 40, "It breaks.", gold_files=("a.py",))
AGENT = AgentConfig(3, 8000, 200, 1000, 0, 8)
TOOLS = ToolsConfig(
    names=["grep", "glob", "read"],
    max_calls=8,
    max_matches=50,
    max_paths=100,
    max_lines=200,
    max_chars=4096,
    max_observation_chars=0,
    max_line_chars=400,
    grep_timeout=10,
    glob_timeout=10,
    read_timeout=5,
    search=SearchToolConfig("hybrid", results=10, max_results=50, timeout=30.0),
    concurrency=64,
    observation="results",
    table_rows=3,
    table_order="score",
    grep_include="*.py",
    exclude_tests=False,
)


class MemorySandbox:
    """Answers every call with one text; a call of the tool "lost" fails by the machine's fault."""

    def __init__(self, text: str = "a.py:1: x", delay: float = 0.0) -> None:
        self.text = text
        self.delay = delay
        self.cancelled = 0
        self.calls: list[Sequence[ToolCall | MalformedCall]] = []

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        if repo == "gone/gone":
            raise RepositoryError("gone/gone cannot be cloned")
        self.calls.append(calls)
        try:
            await asyncio.sleep(self.delay)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [self._one(number, call) for number, call in enumerate(calls, 1)]

    def _one(self, number: int, call: ToolCall | MalformedCall) -> ToolResult:
        if number > TOOLS.max_calls:
            return ToolResult(number, call, ToolStatus.REFUSED, f"refused: call {number} of at most {TOOLS.max_calls}")
        if isinstance(call, MalformedCall):
            return ToolResult(number, call, ToolStatus.MODEL_ERROR, f"malformed call: {call.reason}")
        if call.name == "lost":
            return ToolResult(number, call, ToolStatus.INFRASTRUCTURE, "worktree lost")
        return ToolResult(number, call, ToolStatus.OK, self.text, (FileMatches("a.py", 1, 1, "x"),))


class SayingEngine:
    """Says the texts that `say` gives for the number of assistant turns so far; log-probabilities are -1, -2, ..."""

    def __init__(self, chat: ChatFormat, say: Callable[[int], str], stop: bool = True) -> None:
        self._chat = chat
        self._say = say
        self._stop = stop
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> Generation:
        await asyncio.sleep(0)
        self.requests.append(request)
        turn = (request.prompt_ids.count(self._chat.end_of_turn) - 2) // 2  # system, user, then two a turn
        ids = self._chat.turn_ids(self._say(turn))
        ids = ids if self._stop else ids[:-1]
        cut = len(ids) > request.sampling.max_tokens
        ids = ids[: request.sampling.max_tokens]
        return Generation(tuple(ids), tuple(-float(i + 1) for i in range(len(ids))), "length" if cut else "stop", 3)

    async def close(self) -> None:
        pass
