"""v1, v2 and v3 on the same eight rollouts: three different updates (CodeGrep, arXiv 2608.05886, eq 3 to 8)."""

from __future__ import annotations

import numpy as np
import pytest

from codegrep.issues.issue import LineRange
from codegrep.lab.designs import load_designs
from codegrep.rewards.governance import Conduct
from codegrep.rewards.outcome import Outcome
from codegrep.rewards.signal import batch_advantages, score_rollout

A, B = LineRange("a.py", 10, 19), LineRange("b.py", 5, 8)


def outcome(files: tuple[str, ...], ranges: tuple[LineRange, ...], calls: tuple[int, ...]) -> Outcome:
    return Outcome(
        predicted=files,
        gold=frozenset({"a.py", "b.py"}),
        predicted_ranges=ranges,
        gold_ranges=(A, B),
        calls_per_turn=calls,
        unique_calls_per_turn=calls,
    )


# With two gold files, or ranges, F0.5 is 1.25·hits / (0.5 + answered).
EIGHT = (
    outcome(("a.py", "b.py"), (A, B), (4, 4, 0)),  # 1 and 1, c̄ 4
    outcome(("a.py",), (LineRange("a.py", 12, 19),), (8, 8, 0)),  # 5/6 and 5/6, c̄ 8
    outcome(("a.py",), (), (1, 0)),  # 5/6 and 0, c̄ 1
    outcome(("a.py", "c.py"), (LineRange("c.py", 1, 9), LineRange("a.py", 10, 14)), (2, 2, 0)),  # 1/2 and 1/2, c̄ 2
    outcome(("c.py",), (LineRange("c.py", 1, 5),), (4, 0)),  # 0 and 0, c̄ 4
    outcome(("a.py", "b.py"), (LineRange("a.py", 1, 12), LineRange("b.py", 1, 40)), (6, 6, 0)),  # 1 and 1/2, c̄ 6
    outcome(("a.py", "b.py"), (A, B), (0,)),  # 1 and 1 without a search
    outcome((), (), (3, 1, 0)),  # the empty answer, c̄ 2
)
REWARDS = {
    "v1": (1, 5 / 12, 5 / 12, 1 / 2, 0, 1 / 2, 1, 0),
    "v2": (1, 5 / 6, 5 / 12, 1 / 2, 0, 3 / 4, 0, 0),
    "v3": (1, 5 / 6, 5 / 6, 1 / 2, 0, 1, 0, 0),
}
# (R - mean) / (std + 1e-4), of v2 and v3 times sqrt(min(c̄/4, 1)). Means 23/48, 7/16, 25/48; deviations .379928,
# .405200, .458063.
ADVANTAGES = {
    "v1": (1.37051, -0.16446, -0.16446, 0.05482, -1.26087, 0.05482, 1.37051, -1.26087),
    "v2": (1.38786, 0.97664, -0.02570, 0.10904, -1.07945, 0.77103, 0.0, -0.76329),
    "v3": (1.04584, 0.68207, 0.34104, -0.03215, -1.13679, 1.04584, 0.0, -0.80384),
}


def test_three_designs_give_three_updates() -> None:
    advantages = {}
    for design in load_designs(["v1", "v2", "v3"]):
        scores = [score_rollout(o, Conduct(o.exit_cause, o.calls_per_turn), design.signal) for o in EIGHT]
        batch = batch_advantages(scores, np.zeros(8, dtype=np.intp), design.signal)
        assert batch.rewards == pytest.approx(REWARDS[design.name])
        assert batch.advantages == pytest.approx(ADVANTAGES[design.name], abs=2e-5)
        advantages[design.name] = batch.advantages
    for one, other in (("v1", "v2"), ("v1", "v3"), ("v2", "v3")):
        assert np.abs(advantages[one] - advantages[other]).max() > 0.3, (one, other)


@pytest.mark.parametrize("name", ["v1", "v2", "v3", "swe_grep"])
def test_the_empty_answer_earns_nothing_where_there_are_gold_lines(name: str) -> None:
    (design,) = load_designs([name])
    assert design.signal.reward(EIGHT[-1]).total == 0.0
