"""A policy from MLflow searches a working tree: what is uncommitted counts, what git ignores is not shown to it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import codegrep
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult, ToolStatus
from codegrep.serve.agent import FolderTools, copy_tree
from tests.pipeline.policies.test_fetch import composed, trained  # noqa: F401 - a fixture


def test_a_registered_policy_is_loaded_by_its_alias(
    trained: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs, uri, *_ = trained
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "basket.py").write_text("def total():\n    pass\n")
    retriever = codegrep.Retriever.load("models:/retriever@best", outputs=outputs, tracking_uri=uri)
    assert retriever.is_agent
    rollout = retriever.rollout("The basket total is wrong", tmp_path / "shop")
    assert rollout.turns and not rollout.error
    assert not list((tmp_path / "cache" / "codegrep").glob("tree-*"))  # the copy is gone
    with pytest.raises(codegrep.CodegrepError, match="no model models:/retriever@none"):
        codegrep.Retriever.load("models:/retriever@none", outputs=outputs, tracking_uri=uri)


def test_the_tools_see_the_working_tree_without_what_git_ignores(tmp_path: Path) -> None:
    root, copied = tmp_path / "shop", tmp_path / "copy"
    root.mkdir()
    copied.mkdir()
    (root / "basket.py").write_text("def total():\n    return 'zebra'\n")
    (root / ".env").write_text("SECRET=zebra\n")
    (root / ".gitignore").write_text(".env\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    copy_tree(root, copied)
    told: list[tuple[int, int]] = []

    def on_turn(number: int, results: Sequence[ToolResult]) -> None:
        told.append((number, len(results)))

    tools = FolderTools(copied, composed().tools, on_turn)
    calls = [
        ToolCall("grep", {"pattern": "zebra"}),
        ToolCall("read", {"path": ".env"}),
        MalformedCall("{", "no JSON"),
        *[ToolCall("glob", {"pattern": "*"})] * 9,
    ]
    results = asyncio.run(tools.run_turn("shop", "0", calls))
    assert [match.path for match in results[0].files] == ["basket.py"]
    assert [result.status for result in results[1:3]] == [ToolStatus.MODEL_ERROR] * 2
    assert results[-1].status is ToolStatus.REFUSED and told == [(1, 12)]
