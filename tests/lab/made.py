"""Rollouts on disk for the lab's tests, written by the store that training writes with."""

from __future__ import annotations

import json
import random
from pathlib import Path

from codegrep.rollout.record import CallRecord, Rollout, Turn
from codegrep.rollout.store import RolloutWriter

FILES = ["a.py", "b.py", "c.py", "sub/d.py"]


def made_rollout(step: int, issue: int, place: int, dice: random.Random) -> Rollout:
    """A rollout of some turns with calls of every kind, and perhaps an answer."""
    turns: list[Turn] = []
    at = 0
    for _ in range(dice.randint(0, 3)):
        calls = [
            CallRecord(
                number,
                dice.choice(["grep", "read", "grep", ""]),
                dice.choice(
                    ['{"pattern": "x", "path": "."}', '{"path":".","pattern":"x"}', '{"pattern": "y"}', "grep("]
                ),
                dice.choice(["ok", "ok", "model_error", "refused"]),
                "text",
                ["a.py"],
            )
            for number in range(1, dice.randint(1, 8) + 1)
        ]
        length = dice.randint(1, 40)
        text = dice.choice(["searching", "searching", "<answer>a.py</answer>"])
        turns.append(Turn(at, at + length, text, calls, observation="seen"))
        at += length + 5
    answered = dice.random() < 0.8
    answer = sorted(set(dice.choices(FILES, k=dice.randint(0, 3)))) if answered else []
    content: dict[str, object] = {"files": answer}
    if dice.random() < 0.5:
        content["line_ranges"] = [[path, 1, dice.randint(1, 30)] for path in answer]
    if dice.random() < 0.3:
        content["entities"] = [f"{path}:Model.save" for path in answer]
    before = dice.choice(["", "", '<answer>{"files": 1}</answer>'])
    text = f"{before}<answer>{json.dumps(content)}</answer>" if answered else "no idea"
    turns.append(Turn(at, at + 10, text))
    at += 10
    mask = [0] * at
    for turn in turns:
        mask[turn.start : turn.end] = [1] * (turn.end - turn.start)
    lost = dice.random() < 0.05
    return Rollout(
        rollout_id=f"policy-{step}-issue-{issue}-{place}",
        instance_id=f"issue-{issue}",
        repo="o/n",
        base_commit="c",
        source="policy",
        prompt_ids=[1, 2],
        completion_ids=list(range(at)),
        loss_mask=mask,
        logprobs=[],
        turns=turns,
        answer=answer,
        answered=answered,
        gold_files=FILES[: 1 + issue % 2],
        exit_cause="infrastructure" if lost else "answer" if answered else "no_tool_call",
        step=step,
        seed=place,
    )


def write_run(folder: Path, steps: int = 3, issues: int = 4, size: int = 6, seed: int = 0) -> list[Rollout]:
    """A training artifact under `folder`; its rollouts in the order of writing."""
    dice = random.Random(seed)
    rollouts = [
        made_rollout(step, issue, place, dice)
        for step in range(steps)
        for issue in range(issues)
        for place in range(size)
    ]
    with RolloutWriter(folder / "artifacts" / "train-0123456789ab" / "rollouts", rows_per_part=7) as writer:
        for rollout in rollouts:
            writer.add(rollout)
    return rollouts
