"""An issue longer than the model's context, in the stages before and after GRPO: counted, and no end of a run."""

from __future__ import annotations

import asyncio
import io
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from codegrep.pipeline.prepared import Prepared
from codegrep.pipeline.stages import evaluate
from codegrep.pipeline.stages.demonstrations import weighted
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop
from codegrep.rollout.policy import ScriptedPolicy
from codegrep.rollout.record import Rollout
from codegrep.rollout.store import RolloutWriter, read_rollouts
from codegrep.runtime.artifacts import Places
from codegrep.runtime.progress import Progress
from codegrep.training.examples import make_examples
from tests.chat_tokenizers import tiny_tokenizer
from tests.rollout.fakes import AGENT, ANSWER, ISSUE, TOOLS, MemorySandbox
from tests.training.made_rollouts import WARM_START

CHAT = ChatFormat(tiny_tokenizer())


def rolled_out(context: int) -> Rollout:
    async def write(state: Any) -> str:
        return ANSWER

    loop = RolloutLoop(None, MemorySandbox(), CHAT, AGENT, TOOLS, context=context)
    return asyncio.run(loop.run_policy(ISSUE, ScriptedPolicy(CHAT, write)))


def test_the_warm_start_leaves_it_out_and_says_why(tmp_path: Path) -> None:
    with RolloutWriter(tmp_path) as writer:
        for context in (20, 4000):
            writer.add(weighted(rolled_out(context), WARM_START))
    too_long, fine = read_rollouts(tmp_path)
    assert (too_long.exit_cause, too_long.error, fine.exit_cause) == ("prompt_too_long", "", "answer")
    made = make_examples([too_long, fine], 4000)
    assert len(made.examples) == 1 and made.left_out == {"prompt_too_long": 1}


def test_the_evaluation_counts_it_as_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, Any] = {}
    evaluation = SimpleNamespace(retrievers=[], models=["trained"], targets=None)
    config: Any = SimpleNamespace(evaluate=evaluation, retrievers={})
    artifact: Any = SimpleNamespace(write_json=written.__setitem__)
    out = io.StringIO()
    rows = [{**evaluate._rollout_row(rolled_out(20)), "retriever": "trained"}]
    monkeypatch.setattr(evaluate, "reported", lambda config, prepared: prepared.held_out)
    monkeypatch.setattr(evaluate._Measurements, "agent", lambda self, which: rows)
    monkeypatch.setattr(evaluate._Measurements, "of", lambda self, which: SimpleNamespace(folder=tmp_path / which))
    nothing: Any = None
    summary = evaluate.run(
        config,
        Prepared((), (ISSUE,), ""),
        nothing,
        Places(tmp_path),
        nothing,
        artifact,
        Progress(Console(file=out)),
        nothing,
    )
    counted = {"held_out": 1, "measured": 1, "retrievers": ["trained"], "rollouts": {"trained": "trained"}}
    assert summary == counted
    (row,) = written["per_issue.json"]
    assert (row["f05"], row["turns"], row["exit_cause"], written["lost.json"]) == (0, 0, "prompt_too_long", [])
    assert out.getvalue() == "  1 issues are longer than the context of trained: they count as not answered\n"
    assert asdict(ISSUE)["gold_files"] == ("a.py",)  # so 0 is no empty answer to an empty question
