"""One of two processes that train the nano model together; saves what its first optimiser step was made of.

python -m tests.training.two_workers NANO FOLDER RECIPE...     (RANK, WORLD_SIZE and MASTER_* in the environment)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.training.test_reference_loss import RECIPES
from tests.training.varied_rollouts import Varied, trainer_for

# A recipe in which the first issue's group is dropped and another issue comes in.
REFILLED, SPARE = "refilled", 4
ALIKE = Varied(ends=("answer",), same=True)


def main() -> None:
    nano, folder, *names = sys.argv[1:]
    rank = int(os.environ["RANK"])
    seen: dict[str, Any] = {}
    for name in names:
        refilled = name == REFILLED
        trainer, captured = trainer_for(
            RECIPES["dapo" if refilled else name],
            Path(nano),
            Path(folder) / f"{name}-{rank}",
            ALIKE if refilled else Varied(),
            workers=2,
            spare=SPARE if refilled else 0,
            prompts_per_step=4,
            prompts_per_microbatch=1,
            refill_rounds=2 if refilled else 0,
        )
        asked = trainer.train_dataset["prompt"][:4]  # type: ignore[index]
        trainer.train()
        loss, gradients, adapter = captured.steps[0]
        seen[name] = {
            "loss": loss,
            "gradients": gradients,
            "adapter": adapter,
            "asked": list(asked),
            "issues": list(dict.fromkeys(rollout.instance_id for rollout in captured.rollouts[0])),
            "largest_gap": trainer.logprob_gap.largest if trainer.logprob_gap else 0.0,  # this worker's alone
            "metrics": {k: v for k, v in trainer.own_metrics.items() if not k.startswith("seconds/")},
        }
    torch.save(seen, Path(folder) / f"rank-{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
