"""A replay as an MLflow run: measures under the names of the catalogue, tables, figures, the page."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

from codegrep.lab.designs import Design
from codegrep.lab.replay import Replay
from codegrep.tracking.names import replayed
from codegrep.tracking.run import Tracker

EXPERIMENT = "codegrep-replay"
_NUMBERS = (
    "reward_mean",
    "reward_std",
    "group_std",
    "dead",
    "mass_normalised",
    "mass_factor",
    "mass",
    "effective",
    "bias",
)


def log_replay(
    replay: Replay, designs: list[Design], uri: str, places: list[str], page: str, run_id_file: Path, name: str
) -> str:
    """Write a new run and return its id.

    Args:
        replay: to be recorded.
        designs: for the run's parameters.
        uri: MLflow tracking URI.
        places: what was read, for the run's parameters.
        page: HTML of `replay_page`.
        run_id_file: as in `Tracker.start`.
        name: of the run.

    Raises:
        InfrastructureError: MLflow cannot be reached.
    """
    from codegrep.lab import figures

    tracker = Tracker.start(uri, EXPERIMENT, name, {"kind": "replay"}, run_id_file)
    tracker.params({"places": " ".join(places), "designs": {design.name: design.summary for design in designs}})
    for m in replay.designs:
        values = {key: getattr(m, key) for key in _NUMBERS}
        values |= {f"push_{name}": correlation for name, correlation in m.pushes.items()}
        values |= {f"share_{part.name}": part.alone for part in m.components}
        tracker.metrics({replayed(m.name, k): v for k, v in values.items() if not math.isnan(v)}, step=0)
    tracker.table(
        [{"design": m.name, **{key: getattr(m, key) for key in _NUMBERS}} for m in replay.designs],
        "replay/designs.json",
    )
    if replay.agreements:
        tracker.table([asdict(agreement) for agreement in replay.agreements], "replay/agreement.json")
    tracker.text(page, "replay/replay.html")
    drawn = {"distributions": figures.distributions, "pushes": figures.pushes, "update_mass": figures.update_mass}
    for label, draw in drawn.items():
        tracker.figure(draw(replay), f"figures/{label}.png")
    tracker.finish("FINISHED")
    return tracker.run_id
