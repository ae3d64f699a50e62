"""What went wrong or was held back during training, by design. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from codegrep.compare.designs import ComparedDesign, changes_results
from codegrep.compare.runs import EVENT_ROOMS, EVENTS, RunRecord
from codegrep.tracking.names import describe

ALARM_GAP = 0.1  # nats a token between sampling and training: the engine's weights are then probably stale
# Units that add up over steps; shares are averaged.
_COUNTED = frozenset({"rollouts", "calls", "events", "turns", "requests", "tokens", "s"})
_RAIL_TAG = "guard."


@dataclass(frozen=True)
class EventRow:
    """One kind of event.

    Attributes:
        label: for people.
        unit: "of rollouts" and the like for a share, else what is counted.
        share: printed in per cent.
        values: one mean over runs a design (counts: of a whole training); None where it was not recorded.
        worst: the largest of any run of the design.
    """

    label: str
    unit: str
    share: bool
    values: tuple[float | None, ...]
    worst: tuple[float | None, ...]


def event_rows(designs: Sequence[ComparedDesign]) -> list[EventRow]:
    """Every kind of event that some run recorded; those that never happened too, since that is news as well."""
    names = sorted(
        {
            name
            for design in designs
            for run in design.runs
            for row in run.curves
            for name in row
            if name.startswith(EVENT_ROOMS) or name in EVENTS
        }
    )
    return [_row(name, designs) for name in names]


def dead_groups(designs: Sequence[ComparedDesign]) -> dict[str, float]:
    """Return the mean share of groups without spread of reward, by design; designs that recorded none are missing."""
    rates = {
        design.label: [row["group/dead_rate"] for run in design.runs for row in run.curves if "group/dead_rate" in row]
        for design in designs
    }
    return {label: fmean(values) for label, values in rates.items() if values}


def alarms(designs: Sequence[ComparedDesign]) -> list[str]:
    """Sentences about runs whose numbers should not be trusted without a look."""
    said = []
    for design in designs:
        for run in design.runs:
            said += [f"{design.label}, seed {run.seed}: {words}" for words in _alarms(run)]
    return said


def _alarms(run: RunRecord) -> list[str]:
    found = [
        f"guard rail {tag.removeprefix(_RAIL_TAG)}: {value}"
        for tag, value in sorted(run.training_tags.items())
        if tag.startswith(_RAIL_TAG)
    ]
    gaps = [row["policy/logprob_gap"] for row in run.curves if "policy/logprob_gap" in row]
    if gaps and max(gaps) > ALARM_GAP:
        found.append(
            f"log-probabilities at sampling and in training are up to {max(gaps):.2f} nats a token apart: "
            "the engine may have sampled with old weights"
        )
    lost = sum(row.get("errors/infrastructure", 0.0) for row in run.curves)
    if lost:
        found.append(f"{lost:.0f} rollouts were lost by the machine (never scored)")
    dropped = run.tags.get("tracking.dropped_values", "0")
    if dropped.isdigit() and int(dropped):
        found.append(f"{dropped} values were not finite and are missing from the curves")
    changed = sorted(tag.removeprefix("changed.") for tag in run.tags if tag.startswith("changed."))
    changed = [name for name in changed if changes_results(name)]
    if changed:
        found.append(f"continued with other settings than it began with: {', '.join(changed[:5])}")
    return found


def _row(name: str, designs: Sequence[ComparedDesign]) -> EventRow:
    entry = describe(name)
    unit = entry.unit if entry else ""
    counted = unit in _COUNTED
    per_run = [[_of_run(run, name, counted) for run in design.runs] for design in designs]
    known = [[value for value in values if value is not None] for values in per_run]
    return EventRow(
        label=_label(name, entry.meaning if entry else ""),
        unit=f"{unit} a training" if counted else "",
        share=not counted and unit in ("1", ""),
        values=tuple(fmean(values) if values else None for values in known),
        worst=tuple(max(values) if values else None for values in known),
    )


def _of_run(run: RunRecord, name: str, counted: bool) -> float | None:
    values = [row[name] for row in run.curves if name in row]
    if not values:
        return None
    return sum(values) if counted else fmean(values)


def _label(name: str, meaning: str) -> str:
    if name.startswith("rollout/exit_"):
        return f"rollouts that ended with {name.removeprefix('rollout/exit_')}"
    if name.startswith("guard/"):
        return f"steps beyond the limit of guard rail {name.removeprefix('guard/')}"
    return f"{meaning.partition('(')[0].strip()} ({name})" if meaning else name
