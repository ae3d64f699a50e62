"""Where a trace is: stored rollouts of a run, or a file of trajectories."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from codegrep.errors import ConfigError, DataError
from codegrep.labels.adapters import AdapterError, convert
from codegrep.labels.importing import located_rows
from codegrep.labels.trajectory import ASSISTANT, Trajectory
from codegrep.rollout.store import read_rollouts
from codegrep.rollout.traced import trace_of
from codegrep.tracking.trace_page import Trace, TraceCall, TraceTurn

_LISTED = 8


def trace_at(place: Path, issue: str, number: int, gold: Sequence[str] = ()) -> Trace:
    """Return one trace.

    Args:
        place: a folder with rollouts at or below it, or a file of trajectories.
        issue: its instance id; "" where the place has one issue only.
        number: which of several attempts at the issue, from 1.
        gold: files, for trajectories, which do not hold them.

    Raises:
        ConfigError: there is no such place, issue or number.
        DataError: nothing there can be read.
    """
    if not place.exists():
        raise ConfigError(f"there is no {place}", "Give a folder with rollouts, or a file of trajectories")
    names = _rollout_ids(place) if place.is_dir() else _trajectory_ids(place)
    chosen = _chosen(place, issue, list(dict.fromkeys(names)))
    fitting = list(_traces(place, chosen, gold))
    if not 1 <= number <= len(fitting):
        raise ConfigError(f"{place} has {len(fitting)} attempts at {chosen}", f"Give --number 1 to {len(fitting)}")
    return fitting[number - 1]


def _chosen(place: Path, issue: str, names: Sequence[str]) -> str:
    if not names:
        raise DataError(f"nothing can be read in {place}", "Rollouts are in outputs/artifacts/*/rollouts")
    if issue in names:
        return issue
    if not issue and len(names) == 1:
        return names[0]
    shown = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    if not issue:
        raise ConfigError(f"{place} has {len(names)} issues", f"Choose with --issue: {shown}")
    near = difflib.get_close_matches(issue, names, n=1)
    raise ConfigError(
        f"{place} has no issue {issue!r}", f"Did you mean {near[0]}?" if near else f"Choose with --issue: {shown}"
    )


def _folders(place: Path) -> list[Path]:
    return sorted({part.parent for part in place.rglob("part-*.parquet")})


def _rollout_ids(place: Path) -> Iterator[str]:
    for folder in _folders(place):
        yield from (rollout.instance_id for rollout in read_rollouts(folder))


def _trajectory_ids(place: Path) -> Iterator[str]:
    return (trajectory.instance_id for trajectory in _trajectories(place))


def _traces(place: Path, issue: str, gold: Sequence[str]) -> Iterator[Trace]:
    if place.is_dir():
        for folder in _folders(place):
            for rollout in read_rollouts(folder):
                if rollout.instance_id == issue:
                    step = f", step {rollout.step}" if rollout.step >= 0 else ""
                    yield trace_of(rollout, f"{folder.parent.name}{step}")
    else:
        yield from (traced(one, place.name, gold) for one in _trajectories(place) if one.instance_id == issue)


def _trajectories(path: Path) -> Iterable[Trajectory]:
    """Yield the rows that can be read; a file of which none can is an error."""
    reason = ""
    readable = False
    for number, (where, row) in enumerate(located_rows(path), 1):
        if isinstance(row, str):
            reason = reason or f"{where}: {row}"
            continue
        try:
            yield convert(row, f"{path.name.partition('.')[0]}-{number}")
            readable = True
        except AdapterError as error:
            reason = reason or f"{where}: {error}"
    if not readable:
        raise DataError(f"{path} holds no trajectory that can be read ({reason or 'it is empty'})", "")


def traced(trajectory: Trajectory, source: str, gold: Sequence[str]) -> Trace:
    """Return a trajectory as a trace: each message of the agent is a turn, what follows it is what it read."""
    turns: list[TraceTurn] = []
    for message in trajectory.messages:
        if message.role in ASSISTANT:
            calls = tuple(TraceCall(call.name, call.arguments) for call in message.calls)
            turns.append(TraceTurn(message.content, calls, ""))
        elif turns:
            last = turns[-1]
            seen = f"{last.observation}\n\n{message.content}" if last.observation else message.content
            turns[-1] = TraceTurn(last.text, last.calls, seen)
    ending = {True: "resolved", False: "not resolved", None: ""}[trajectory.resolved]
    label = f"{source}, {trajectory.trajectory_id}"
    return Trace(label, trajectory.instance_id, tuple(turns), gold=tuple(gold), ending=ending)
