"""What each style of prompt asks for in the answer."""

from __future__ import annotations

import pytest

from codegrep.config import AgentConfig
from codegrep.protocol.parse import parse_message
from codegrep.protocol.prompt import system_prompt
from codegrep.protocol.schemas import schemas_of
from codegrep.sandbox import paper_tools

TOOLS = paper_tools(names=["grep"])


def prompt(style: str) -> str:
    agent = AgentConfig(3, 1, 1, 1, 0, 1, prompt=style)
    return system_prompt(agent, TOOLS, schemas_of(["grep"]), "short" if style == "short" else "detailed")


@pytest.mark.parametrize(("style", "has", "lacks"), [
    ("short", "files", "line_ranges"),
    ("detailed", "line_ranges", "entities"),
    ("entities", "entities", "line_ranges"),
])  # fmt: skip
def test_the_example_answer_is_readable_and_asks_for_what_is_scored(style: str, has: str, lacks: str) -> None:
    text = prompt(style)
    assert f'"{has}"' in text
    assert f'"{lacks}"' not in text
    example = text[text.index("<answer>") :]
    answer = parse_message(example).answer
    assert answer is not None
    assert bool(answer.entities) == (style == "entities")
    assert bool(answer.ranges) == (style == "detailed")
    assert answer.error == ""
