"""A rollout as a trace for people."""

from __future__ import annotations

from codegrep.metrics.scores import f_beta
from codegrep.rollout.record import Rollout
from codegrep.tracking.trace_page import Trace, TraceCall, TraceTurn


def trace_of(rollout: Rollout, label: str) -> Trace:
    """Return what a person reads of a rollout; F0.5 is against its gold files."""
    turns = tuple(
        TraceTurn(
            text=turn.text,
            calls=tuple(TraceCall(call.name, call.arguments, call.status) for call in turn.calls),
            observation=turn.observation,
            tokens=turn.end - turn.start,
            seconds_model=turn.seconds_generation or None,
            seconds_tools=turn.seconds_tools or None,
        )
        for turn in rollout.turns
    )
    scores = (("F0.5", f"{f_beta(rollout.answer, rollout.gold_files):.3f}"),) if rollout.gold_files else ()
    ending = f"{rollout.exit_cause}: {rollout.error}" if rollout.error else str(rollout.exit_cause)
    gold = tuple(rollout.gold_files)
    return Trace(label, rollout.instance_id, turns, tuple(rollout.answer), gold, ending, scores)
