"""Rollouts whose assistant text is given, run through the same loop and the real tools."""

from __future__ import annotations

from collections.abc import Sequence

from codegrep.issues.issue import Issue
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop
from codegrep.rollout.policy import ScriptedPolicy, TurnState
from codegrep.rollout.record import Rollout


async def scripted_rollout(
    issue: Issue, turns: Sequence[str], loop: RolloutLoop, chat: ChatFormat, *, label: str = ""
) -> Rollout:
    """Run given assistant texts, one a turn, as if the model had written them.

    Args:
        turns: assistant texts without end-of-turn markers; when they are used up the next turn is empty, which ends
            the rollout.
        loop: may be made without an engine.

    Returns:
        A rollout with source "scripted", loss mask 1 on the given turns and their end-of-turn tokens, no
        log-probabilities.
    """

    async def write(state: TurnState) -> str:
        return turns[state.turn] if state.turn < len(turns) else ""

    return await loop.run_policy(issue, ScriptedPolicy(chat, write), label=label)
