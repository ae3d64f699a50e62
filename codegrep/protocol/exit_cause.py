"""Why a rollout ended."""

from __future__ import annotations

from enum import StrEnum


class ExitCause(StrEnum):
    """Why a rollout ended. CodeGrep (arXiv 2608.05886) and arXiv 2605.07276 name most of these ends."""

    ANSWER = "answer"  # an answer block in an assistant message
    NO_TOOL_CALL = "no_tool_call"  # a turn with neither a call nor an answer
    MAX_TURNS = "max_turns"  # the answer turn was reached and gave no answer
    MAX_TOKENS = "max_tokens"  # a turn or the completion budget ran out of tokens
    MALFORMED = "malformed"  # a call or answer that could not be read, where agent.stop_at_malformed
    CONTEXT_LIMIT = "context_limit"  # prompt + completion reached the model's context
    PROMPT_TOO_LONG = "prompt_too_long"  # the prompt alone fills the model's context, so nothing was sampled
    INFRASTRUCTURE = "infrastructure"  # never the model's fault, never scored as a bad rollout


LOST = (ExitCause.INFRASTRUCTURE, ExitCause.PROMPT_TOO_LONG)
"""Ends that say nothing about the policy: such a rollout has no reward, and nothing to train on."""
