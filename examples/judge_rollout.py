"""Judge answers under several reward designs: python examples/judge_rollout.py.

A design sees an `Outcome` alone, so it can be tried without a model, a repository or a training run.
"""

import numpy as np

from codegrep.issues.issue import LineRange
from codegrep.lab.designs import load_designs
from codegrep.rewards.governance import Conduct
from codegrep.rewards.outcome import Outcome
from codegrep.rewards.signal import batch_advantages, score_rollout

GOLD = frozenset({"src/app.py"})
LINES = (LineRange("src/app.py", 40, 52),)


def outcome(*files: str, lines: tuple[LineRange, ...] = (), calls: tuple[int, ...]) -> Outcome:
    """Return what a design sees of an answer; the last turn of `calls` is the answer's."""
    return Outcome(predicted=files, predicted_ranges=lines, gold=GOLD, gold_ranges=LINES, calls_per_turn=calls)


ANSWERS = {
    "right, 2 turns of 8 calls": outcome("src/app.py", lines=LINES, calls=(8, 8, 0)),
    "right, 2 turns of 1 call": outcome("src/app.py", lines=LINES, calls=(1, 1, 0)),
    "right and a wrong one": outcome("src/app.py", "src/b.py", lines=LINES, calls=(4, 4, 0)),
    "a guess, no search": outcome("src/b.py", calls=(0,)),
}


def main() -> None:
    """Print the reward and the advantage of each answer, as if the four were one group."""
    one_group = np.zeros(len(ANSWERS), dtype=np.intp)
    for design in load_designs(["v1", "v2", "v3", "colgrep"]):
        scores = [
            score_rollout(outcome, Conduct("answer", outcome.calls_per_turn), design.signal)
            for outcome in ANSWERS.values()
        ]
        advantages = batch_advantages(scores, one_group, design.signal).advantages
        print(design.name)
        for name, score, advantage in zip(ANSWERS, scores, advantages, strict=True):
            assert score.reward is not None  # nothing was lost
            print(f"  {name:<28} reward {score.reward.total:5.2f}   advantage {advantage:+5.2f}")


if __name__ == "__main__":
    main()
