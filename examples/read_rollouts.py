"""Read the rollouts of a run with pandas: python examples/read_rollouts.py outputs/artifacts/train-…/rollouts."""

import sys
from pathlib import Path

import pandas as pd

from codegrep.metrics.scores import f_beta
from codegrep.rollout.store import read_rollouts


def table(folder: Path) -> pd.DataFrame:
    """Return one row a rollout."""
    return pd.DataFrame(
        {
            "step": rollout.step,
            "instance_id": rollout.instance_id,
            "f05": f_beta(rollout.answer, rollout.gold_files, 0.5),
            "calls": sum(len(turn.calls) for turn in rollout.turns),
            "tokens": sum(rollout.loss_mask),
            "exit_cause": str(rollout.exit_cause),
        }
        for rollout in read_rollouts(folder)
    )


def main(folder: str) -> None:
    """Print means by training step, and how the rollouts ended."""
    rollouts = table(Path(folder))
    print(rollouts.groupby("step")[["f05", "calls", "tokens"]].mean().round(3))
    print(rollouts["exit_cause"].value_counts().to_string())


if __name__ == "__main__":
    main(*sys.argv[1:])
