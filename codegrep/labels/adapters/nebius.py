"""The columns of nebius/SWE-rebench-openhands-trajectories: chat messages with function calls.

All message fields are there in every message, those of other roles null; arguments are JSON text, in some exports a
struct padded with nulls.
"""

from __future__ import annotations

from codegrep.labels.adapters.parts import Row, id_of, messages_of, outcome, text_of
from codegrep.labels.trajectory import Trajectory


def fits(row: Row) -> bool:
    """Whether the row has the columns."""
    steps = row.get("trajectory")
    return isinstance(steps, list) and bool(steps) and isinstance(steps[0], dict) and "role" in steps[0]


def convert(row: Row, name: str) -> Trajectory:
    """See Adapter."""
    instance = id_of(row, "instance_id")
    return Trajectory(
        id_of(row, "trajectory_id") or f"{instance}@{name}",
        instance,
        text_of(row.get("repo")),
        messages_of(row.get("trajectory")),
        outcome(row),
    )
