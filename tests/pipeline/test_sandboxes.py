"""What the tools answer is part of a stage's fingerprint: their settings, and the index behind `search`."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegrep.index import fusion
from codegrep.pipeline.sandboxes import tools_inputs
from tests.sandbox.trees import tool_limits


def test_another_shipped_index_is_another_input_where_the_agent_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grep, search = tool_limits(), tool_limits(names=["grep", "search"])
    before = tools_inputs(search)
    assert before["tools"] == search and tools_inputs(grep) == {"tools": grep}
    weights = tmp_path / "fusion.json"
    weights.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(fusion, "SHIPPED", weights)
    assert tools_inputs(search)["index"] != before["index"] and "index" not in tools_inputs(grep)
