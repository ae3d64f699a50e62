"""The common form of an agent's trajectory, and its Arrow schema: the columns of the Nebius set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

_FUNCTION = pa.struct([("name", pa.string()), ("arguments", pa.string())])
_CALL = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", _FUNCTION)])
_MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("name", pa.string()),
        ("tool_call_id", pa.string()),
        ("tool_calls", pa.list_(_CALL)),
    ]
)
#: Roles of the agent's own messages, as sources write them.
ASSISTANT = ("assistant", "ai")
#: What every source is brought to before it is mined.
SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("instance_id", pa.string()),
        ("repo", pa.string()),
        ("resolved", pa.int64()),
        ("trajectory", pa.list_(_MESSAGE)),
    ]
)


@dataclass(frozen=True)
class Call:
    """One function call of an assistant message. arguments: JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: text; "" where there is none.
        calls: of an assistant message.
        call_id: of a tool message: the call it answers; "" where the source does not say.
        name: of a tool message: the tool.
    """

    role: str
    content: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True)
class Trajectory:
    """One attempt at one issue.

    Attributes:
        trajectory_id: unique within a set.
        repo: "owner/name"; "" where the source does not say (it is then read off the instance id).
        resolved: whether the attempt passed its tests; None where it is not known.
    """

    trajectory_id: str
    instance_id: str
    repo: str
    messages: tuple[Message, ...]
    resolved: bool | None = None


def repo_of(repo: str, instance_id: str) -> str:
    """`repo`, or what SWE-bench's instance ids say: "owner__name-123" is of owner/name; "" where neither says."""
    if repo.strip():
        return repo.strip()
    owner, parted, rest = instance_id.partition("__")
    name = rest.rpartition("-")[0]
    return f"{owner}/{name}" if parted and owner and name else ""


def to_arrow(trajectories: Sequence[Trajectory]) -> pa.Table:
    """Trajectories as a table of SCHEMA."""
    return pa.Table.from_pylist([_row(t) for t in trajectories], schema=SCHEMA)


def _row(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "trajectory_id": trajectory.trajectory_id,
        "instance_id": trajectory.instance_id,
        "repo": repo_of(trajectory.repo, trajectory.instance_id),
        "resolved": None if trajectory.resolved is None else int(trajectory.resolved),
        "trajectory": [
            {
                "role": message.role,
                "content": message.content,
                "name": message.name or None,
                "tool_call_id": message.call_id or None,
                "tool_calls": [
                    {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                    for c in message.calls
                ]
                or None,
            }
            for message in trajectory.messages
        ],
    }


class Read(NamedTuple):  # a tuple: made a hundred thousand times
    """One file-read call of a trajectory that succeeded on a file of the repository.

    Attributes:
        row: number of the trajectory in its batch.
        message: index of the assistant message in the trajectory. call: index of the call in the message.
        turn: how many assistant messages there were up to this one.
        path: repo-relative POSIX path.
        reasoning: index of the next assistant message, whose content is the post-reasoning; -1 where there is none.
        text: the post-reasoning's text.
        thought: text of the `think` calls of that message; "" where there are none.
    """

    row: int
    message: int
    call: int
    call_id: str
    tool: str
    turn: int
    path: str
    reasoning: int
    text: str
    thought: str = ""

    def post_reasoning(self, with_thought: bool) -> str:
        """Return the text that is measured and judged."""
        if not with_thought or not self.thought:
            return self.text
        return f"{self.text}\n{self.thought}" if self.text.strip() else self.thought


@dataclass
class Mined:
    """What mining a batch of trajectories gives.

    Attributes:
        reads: in the order of the batch.
        rows: trajectories in the batch.
        calls: function calls of assistant messages.
        read_calls: calls that ask to read a file, before any of them is dropped.
        dropped: read calls left out, by reason.
        ledger: odd arguments, by kind; the reads they are of stay.
    """

    rows: int = 0
    calls: int = 0
    read_calls: int = 0
    reads: list[Read] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)

    def counts(self) -> dict[str, Any]:
        """Everything but the reads, for comparison and records."""
        return {k: v for k, v in vars(self).items() if k != "reads"}
