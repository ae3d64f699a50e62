"""What the agent is told before its first turn. The paper prints no prompts; these are ours (CodeGrep 3.2).

Two variants: the short one costs a small model few tokens (about 100 for three tools), the detailed one gives JSON
schemas and advice to larger ones. A model whose chat template describes tools itself gets the detailed text without
the schemas.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from codegrep.config import AgentConfig, ToolsConfig
from codegrep.protocol.schemas import ToolSchema

PromptStyle = Literal["short", "detailed", "native"]
_EXAMPLES = {"grep": "regex", "search": "words"}
ANSWER_NOW = "No calls are left. Answer now."
ANSWER_REFUSAL = "refused: no calls in the answer turn"
AFTER_ANSWER_REFUSAL = "not run: the answer ended the search"
OUT_OF_TOKENS_REFUSAL = "not run: the turn ran out of tokens"
MALFORMED_REFUSAL = "not run: something in the turn could not be read"


def system_prompt(
    agent: AgentConfig,
    tools: ToolsConfig,
    schemas: Sequence[ToolSchema],
    style: PromptStyle = "short",
) -> str:
    """Return the system message.

    Args:
        schemas: tools that are offered, in order.
        style: "native" is "detailed" without schemas, for chat templates that render them.
    """
    return _short(agent, tools, schemas) if style == "short" else _detailed(agent, tools, schemas, style == "detailed")


def user_prompt(repo: str, statement: str, max_issue_chars: int) -> str:
    """Return the user message: repository name and issue text.

    Args:
        max_issue_chars: a longer statement is cut, with a note of how much is missing, to this length; 0 means no cut.
    """
    text = statement.strip()
    if max_issue_chars and len(text) > max_issue_chars:
        kept = text[: max(0, max_issue_chars - len(_left_out(len(text))))].rstrip()
        text = (kept + _left_out(len(text) - len(kept)))[:max_issue_chars]
    return f"Repository: {repo}\nIssue: {text}"


def call_form(schemas: Sequence[ToolSchema]) -> str:
    """Return a call of the first tool, as an example."""
    first = schemas[0]
    arguments = {name: _EXAMPLES.get(first.name, "...") for name in first.required}
    return f"<tool_call>\n{json.dumps({'name': first.name, 'arguments': arguments})}\n</tool_call>"


def _left_out(count: int) -> str:
    return f"\n[{count} more characters left out]"


def _short(agent: AgentConfig, tools: ToolsConfig, schemas: Sequence[ToolSchema]) -> str:
    limit = f" (at most {agent.max_answer_files})" if agent.max_answer_files else ""
    signatures = ", ".join(schema.signature for schema in schemas)
    return (
        f"Find the files to change for the issue{limit}. "
        f"{agent.exploration_turns} turns, up to {tools.max_calls} calls each:\n"
        f"{call_form(schemas)}\n"
        f"Tools: {signatures}\n"
        'Then answer: <answer>{"files": ["path"]}</answer>'
    )


def _detailed(agent: AgentConfig, tools: ToolsConfig, schemas: Sequence[ToolSchema], with_schemas: bool) -> str:
    limit = f"Name at most {agent.max_answer_files} files. " if agent.max_answer_files else ""
    if agent.prompt == "entities":
        places = "classes and functions to change, as path:Class.method."
        example = '<answer>{"files": ["path/to/file.py"], "entities": ["path/to/file.py:Class.method"]}</answer>'
    else:
        places = "line ranges [file, first line, last line] that matter."
        example = '<answer>{"files": ["path/to/file.py"], "line_ranges": [["path/to/file.py", 10, 42]]}</answer>'
    parts = [
        "You locate code. Given an issue of a software repository, find the source files that have to be changed to "
        "resolve it. You can search and read the repository, but not change it.",
        f"You have {agent.exploration_turns} turns to explore. In each one make up to {tools.max_calls} independent "
        f"calls at once; they run in parallel, and calls beyond that number are refused. A turn without a call ends "
        "the search.",
        "When you know the files, or when the turns are used up, give the answer, best file first, with the "
        f"{places} {limit}Wrong files cost more than missing ones:\n{example}",
    ]
    if with_schemas:
        listed = "\n".join(json.dumps(schema.function) for schema in schemas)
        form = f"Write each call as one JSON object in its own block:\n{call_form(schemas)}"
        parts.insert(2, f"The tools, as JSON schemas:\n<tools>\n{listed}\n</tools>\n{form}")
    return "\n\n".join(parts)
