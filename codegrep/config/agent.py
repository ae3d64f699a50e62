"""conf/agent: the agent's protocol."""

from __future__ import annotations

from dataclasses import dataclass

PROMPTS = ("short", "detailed", "entities")


@dataclass
class AgentConfig:
    """conf/agent: the protocol of SPEC 1.1.

    Attributes:
        exploration_turns: turns with tools (3); one answer turn follows.
        max_issue_chars: longer statements are cut, with a note.
        max_turn_tokens: most sampled tokens of one turn.
        max_completion_tokens: most sampled tokens of one rollout (4,096).
        max_answer_files: files asked for in the system prompt; 0 leaves the number open.
        parallel_rollouts: rollouts in flight at once.
        max_seconds: a rollout that takes longer is given up, as the machine's fault; 0 sets no limit.
        strict_tokens: a turn whose tokens are not what the chat format expects stops the run; else it is counted.
        stop_at_malformed: a turn with a call or answer that cannot be read ends the rollout (SWE-grep); else the model
            is told, and goes on.
        prompt: "short" for small models and asks for files; "detailed" gives tool schemas and advice and asks for line
            ranges; "entities" is as "detailed" and asks for classes and functions instead.
    """

    exploration_turns: int
    max_issue_chars: int
    max_turn_tokens: int
    max_completion_tokens: int
    max_answer_files: int
    parallel_rollouts: int
    max_seconds: float = 0.0
    strict_tokens: bool = False
    stop_at_malformed: bool = False
    prompt: str = "short"
