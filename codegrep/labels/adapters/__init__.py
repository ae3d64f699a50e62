"""Adapters: rows of the agents' own files in the common form. One module a format, each with `fits` and `convert`.

Rows come from elsewhere and are trusted with nothing: a row that does not fit raises AdapterError, and is quarantined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codegrep.labels.adapters import mini_swe_agent, nebius, openhands_v0, openhands_v1, swe_agent
from codegrep.labels.adapters.parts import AdapterError, Row
from codegrep.labels.trajectory import Trajectory

__all__ = ["ADAPTERS", "AUTO", "Adapter", "AdapterError", "convert"]

AUTO = "auto"


@dataclass(frozen=True)
class Adapter:
    """One format.

    Attributes:
        fits: whether a row looks like it, by its keys.
        convert: the row in the common form; the second argument names the row where it has no id of its own.
    """

    fits: Callable[[Row], bool]
    convert: Callable[[Row, str], Trajectory]


#: Tried in this order for format=auto.
ADAPTERS: Mapping[str, Adapter] = {
    "nebius": Adapter(nebius.fits, nebius.convert),
    "openhands_v1": Adapter(openhands_v1.fits, openhands_v1.convert),
    "openhands_v0": Adapter(openhands_v0.fits, openhands_v0.convert),
    "mini_swe_agent": Adapter(mini_swe_agent.fits, mini_swe_agent.convert),
    "swe_agent": Adapter(swe_agent.fits, swe_agent.convert),
}


def convert(row: Row, name: str, form: str = AUTO) -> Trajectory:
    """One row in the common form.

    Args:
        name: names the row where it has no id, for example its file's stem.
        form: a key of ADAPTERS, or AUTO.

    Raises:
        AdapterError: no adapter fits, or the row is broken.
    """
    try:
        if form != AUTO:
            return _checked(ADAPTERS[form].convert(row, name))
        for adapter in ADAPTERS.values():
            if adapter.fits(row):
                return _checked(adapter.convert(row, name))
    except AdapterError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise AdapterError(f"{type(error).__name__}: {str(error)[:200]}") from None
    raise AdapterError(f"no known trajectory format has these keys: {', '.join(sorted(map(str, row))[:12])}")


def _checked(trajectory: Trajectory) -> Trajectory:
    if not trajectory.trajectory_id or not trajectory.instance_id:
        raise AdapterError("no instance_id or trajectory_id")
    if not trajectory.messages:
        raise AdapterError("no message")
    return trajectory
