"""What became of the jobs of a sweep: the record, and the table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from codegrep.runtime.artifacts import write_json

COMPLETED = "completed"
FAILED = "failed"  # the job said what is wrong, or crashed
LOST = "lost"  # its process or its node was killed
STOPPED = "stopped"  # by the person
REFUSED = "refused"  # its configuration is wrong, or no node can carry it
WAITING = "waiting"  # the sweep ended before its turn
_STYLES = {COMPLETED: "green", STOPPED: "yellow", WAITING: "dim"}
_MODELS = ("trained", "warm_start", "base")


@dataclass(frozen=True)
class JobResult:
    """One job.

    Attributes:
        job: number in the sweep, from 0.
        overrides: what sets it apart.
        run: name of its run folder; "" when its configuration could not be read.
        status: one of the constants above.
        code: exit code of its last start; -N: ended by signal N; None: never started in this sweep.
        reason: one line for a job that did not complete.
        seconds: wall time of all its starts in this call of the sweep.
        starts: how often it was started in this call; 0 for one that was complete before.
        f05: mean F0.5 on held-out issues of its last model, where it was measured.
        log: file name in the sweep's folder.
    """

    job: int
    overrides: tuple[str, ...]
    run: str
    status: str
    code: int | None = None
    reason: str = ""
    seconds: float = 0.0
    starts: int = 0
    f05: float | None = None
    log: str = ""

    def row(self) -> dict[str, Any]:
        """Return the row for a table in MLflow."""
        return asdict(self) | {"overrides": " ".join(self.overrides)}


def write(folder: Path, outcomes: Sequence[JobResult]) -> None:
    """Write outcomes.json into the sweep's folder."""
    write_json(folder / "outcomes.json", [asdict(outcome) for outcome in outcomes])


def read(folder: Path) -> list[JobResult]:
    """Return the record of a sweep's folder; empty when there is none yet."""
    try:
        rows = json.loads((folder / "outcomes.json").read_text(encoding="utf-8"))
    except OSError:
        return []
    return [JobResult(**{**row, "overrides": tuple(row["overrides"])}) for row in rows]


def table(name: str, outcomes: Sequence[JobResult]) -> Table:
    """Make the table for the terminal."""
    results = Table(title=f"Sweep {name}", title_justify="left", box=None, pad_edge=False)
    for heading in ("job", "overrides", "outcome", "F0.5", "seconds", "starts"):
        right = heading in ("job", "F0.5", "seconds", "starts")
        results.add_column(heading, justify="right" if right else "left", overflow="fold")
    for o in outcomes:
        outcome = o.status if o.code in (None, 0) or o.status == STOPPED else f"{o.status} ({ended(o.code)})"
        if o.status == COMPLETED and not o.starts:
            outcome = "completed before"
        results.add_row(
            str(o.job),
            " ".join(o.overrides),
            f"[{_STYLES.get(o.status, 'red')}]{outcome}",
            "" if o.f05 is None else f"{o.f05:.3f}",
            f"{o.seconds:.0f}" if o.starts else "",
            str(o.starts) if o.starts else "",
        )
    return results


def reasons(outcomes: Sequence[JobResult]) -> list[str]:
    """Write one line for each job that did not complete and has a reason."""
    return [
        f"job {o.job}: {o.reason}" + (f" (log: {o.log})" if o.log else "")
        for o in outcomes
        if o.status not in (COMPLETED, WAITING) and o.reason
    ]


def ended(code: int | None) -> str:
    """Put an exit code in words."""
    if code is None:
        return "not started"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def held_out_f05(run_folder: Path) -> float | None:
    """Return the mean F0.5 of the last model that a run measured."""
    try:
        rows = json.loads((run_folder / "report" / "retrievers.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    by_name = {row.get("retriever"): row for row in rows if isinstance(row, dict)}
    last = next((by_name[model] for model in _MODELS if model in by_name), None)
    return None if last is None else float(last["f05_mean"])


def last_line(log: Path, most: int = 240) -> str:
    """Return the last line of a job's log, which is its error when it failed."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode("utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last.removeprefix("codegrep: ")[:most]
