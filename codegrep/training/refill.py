"""Dynamic sampling (DAPO, arXiv 2503.14476; colgrep, arXiv 2610.05099): dropped groups are replaced by other issues'.

The papers sample until the batch is full. Here a number of rounds bounds it, so that a step ends also where the policy
solves all or nothing: in each round a group of another issue, which may be dead too, takes the place of every dead one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Refill:
    """Chooses the issues of refills, consistently over all training workers.

    Attributes:
        ids: all training issues.
        batches: issues of each batch in the order of training, all workers together.
        size: issues of a batch.
        rounds: of a step.
        seed: draws depend on it and on the batch alone.
        gather: (this worker's number) -> every worker's, in their order; all workers meet there.
        rank: returns the rank of this worker, which is not known yet when this object is made.
    """

    ids: Sequence[str]
    batches: Sequence[str]
    size: int
    rounds: int
    seed: int
    gather: Callable[[int], Sequence[int]]
    rank: Callable[[], int]

    def draw(self, batch: int, dead: Callable[[], int]) -> Iterator[list[str]]:
        """Yield issues for this worker's dead groups, round by round; fewer when no other issues are left.

        Workers meet in every round and after the last one, so that engines and trainers on one GPU take turns.

        Args:
            batch: number of the batch.
            dead: returns how many groups of this worker are dead, before each round.
        """
        own = set(self.batches[batch * self.size : (batch + 1) * self.size])
        others = sorted(set(self.ids) - own)
        random.Random(f"{self.seed}-{batch}-refill").shuffle(others)
        for _ in range(self.rounds):
            missing = list(self.gather(dead()))
            if not any(missing) or not others:
                return
            rank = self.rank()
            before = sum(missing[:rank])
            mine, others = others[before : before + missing[rank]], others[sum(missing) :]
            if mine:
                yield mine
        if self.rounds:
            self.gather(0)
