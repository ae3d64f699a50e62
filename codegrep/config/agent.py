"""conf/agent: the agent's protocol."""

from __future__ import annotations

from typing import Literal

from codegrep.config.setting import group, setting


@group
class AgentConfig:
    """conf/agent: turns, budgets and prompt of the agent (CodeGrep 3.2, A.1, A.4)."""

    exploration_turns: int = setting("turns with tools; one answer turn follows", ge=1, paper="3")
    max_issue_chars: int = setting("longer statements are cut, with a note", ge=1)
    max_turn_tokens: int = setting("sampled tokens of one turn", ge=1)
    max_completion_tokens: int = setting("sampled tokens of one rollout", ge=1, paper="4,096")
    max_answer_files: int = setting("files asked for in the system prompt, not enforced; 0: open", ge=0, paper="open")
    parallel_rollouts: int = setting("rollouts in flight at once", ge=1, paper="512 a step")
    max_seconds: float = setting(
        "seconds after which a rollout is given up as the machine's fault; 0: no limit", ge=0, default=0.0
    )
    strict_tokens: bool = setting("stop the run at a turn whose tokens do not fit the chat format", default=False)
    stop_at_malformed: bool = setting(
        "end the rollout at a call or answer that cannot be read; else the model is told",
        default=False,
        paper="SWE-grep: true",
    )
    prompt: Literal["short", "detailed", "entities"] = setting(
        "short asks for files; detailed gives schemas and advice and asks for line ranges; entities asks for classes "
        "and functions instead",
        default="short",
    )
