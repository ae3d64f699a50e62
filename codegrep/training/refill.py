"""Dynamic sampling (DAPO, arXiv 2503.14476; colgrep, arXiv 2610.05099): dropped groups are replaced by other issues'.

The papers sample until the batch is full. Here (reconstructed) it is a number of rounds, so that a policy that solves
all or nothing cannot keep a step from ending: in each round every dead group gives its place to a group of another
issue, which may be dead too. What is then still dead is dropped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Refill:
    """Which issues come in, the same for all training workers.

    Attributes:
        ids: all training issues. batches: issues of each batch in the order of training, all workers together.
        size: issues of a batch. rounds: of a step.
        seed: of the draws; they depend on it and on the step alone.
        gather: (this worker's number) -> that of every worker, in their order; a point at which all workers meet.
        rank: of this worker; asked when it is known.
    """

    ids: Sequence[str]
    batches: Sequence[str]
    size: int
    rounds: int
    seed: int
    gather: Callable[[int], Sequence[int]]
    rank: Callable[[], int]

    def draw(self, batch: int, dead: Callable[[], int]) -> Iterator[list[str]]:
        """Issues for this worker's dead groups, round by round; fewer than asked for when no other issues are left.

        Every worker comes to every round, also with nothing to fill, and none goes on before the last one is through:
        engines and trainers that share a GPU then do not work at the same time.

        Args:
            batch: number of the batch.
            dead: how many groups of this worker are dead now; asked before each round.
        """
        there = set(self.batches[batch * self.size : (batch + 1) * self.size])
        others = sorted(set(self.ids) - there)
        random.Random(f"{self.seed}-{batch}-refill").shuffle(others)
        for _ in range(self.rounds):
            wanted = list(self.gather(dead()))
            if not any(wanted) or not others:
                return
            rank = self.rank()
            before = sum(wanted[:rank])
            mine, others = others[before : before + wanted[rank]], others[sum(wanted) :]
            if mine:
                yield mine
        if self.rounds:
            self.gather(0)
