"""The sandbox actors of a run, started once and shared by every stage."""

from __future__ import annotations

from codegrep.pipeline.context import Context
from codegrep.pipeline.stages import prepare
from codegrep.sandbox.actor import RemoteSandbox, start_sandboxes


def sandbox_for(context: Context) -> RemoteSandbox:
    """A handle on the run's sandbox actors; they are started at the first call and end with the run's Ray."""
    if context.sandbox is None:
        config = context.config
        context.sandbox = start_sandboxes(
            config.sandbox.actors,
            context.places.sandbox,
            config.tools,
            config.sandbox,
            prepare.locations(context.need("prepare")),
        )
    return context.sandbox
