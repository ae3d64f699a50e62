"""Rollouts: the record, and the loop that makes it from an engine, a sandbox and the protocol."""

from codegrep.rollout.record import CallRecord, ExitCause, Rollout, Turn

__all__ = ["CallRecord", "ExitCause", "Rollout", "Turn"]
