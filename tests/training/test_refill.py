"""Dropped groups are replaced by groups of other issues: which, by whom, and what a real step is then made of."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codegrep.compose import compose_overrides, load
from codegrep.errors import ConfigError
from codegrep.issues.issue import Issue
from codegrep.metrics.scores import f_beta
from codegrep.rewards.outcome import RewardParts
from codegrep.rollout.record import Rollout
from codegrep.training.refill import Refill
from tests.training.test_reference_loss import RECIPES
from tests.training.varied_rollouts import Varied, trainer_for

IDS = [f"i{n}" for n in range(12)]
BATCHES = ["i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7"]


def refill(rounds: int = 2, rank: int = 0, gather: Any = None, seed: int = 0) -> Refill:
    return Refill(IDS, BATCHES, 4, rounds, seed, gather or (lambda number: [number]), lambda: rank)


def drawn(made: Refill, batch: int, dead: Sequence[int]) -> list[list[str]]:
    left = iter(dead)
    return list(made.draw(batch, lambda: next(left, 0)))


def test_other_issues_come_in_each_once_and_the_same_ones_again() -> None:
    first, second = drawn(refill(), 0, [2, 1])
    assert (len(first), len(second)) == (2, 1)
    assert not {*first, *second} & {"i0", "i1", "i2", "i3"} and len({*first, *second}) == 3
    assert drawn(refill(), 0, [2, 1]) == [first, second]
    assert drawn(refill(seed=1), 0, [2, 1]) != [first, second] or drawn(refill(seed=2), 0, [2, 1]) != [first, second]
    assert not set(drawn(refill(), 1, [2])[0]) & {"i4", "i5", "i6", "i7"}


def test_it_ends_when_nothing_is_dead_when_rounds_are_over_and_when_no_issue_is_left() -> None:
    assert drawn(refill(), 0, [0]) == []
    assert [len(ids) for ids in drawn(refill(rounds=1), 0, [4])] == [4]
    assert [len(ids) for ids in drawn(refill(rounds=9), 0, [4, 4, 4])] == [4, 4]
    assert [len(ids) for ids in drawn(refill(rounds=9), 0, [5, 5, 4])] == [5, 3]
    assert drawn(refill(rounds=0), 0, []) == []


@pytest.mark.parametrize("dead", [([2, 1], [1, 1]), ([2, 1], [0, 0]), ([0, 1], [1, 2]), ([4, 0], [4, 4])])
def test_workers_meet_at_every_round_and_never_share_an_issue(dead: tuple[list[int], list[int]]) -> None:
    barrier, said = threading.Barrier(2, timeout=20), [0, 0]

    def gather_of(rank: int) -> Any:
        def gather(number: int) -> list[int]:
            said[rank] = number
            barrier.wait()
            both = list(said)
            barrier.wait()
            return both

        return gather

    found: list[list[list[str]]] = [[], []]
    meetings = [0, 0]

    def work(rank: int) -> None:
        inner = gather_of(rank)

        def gather(number: int) -> list[int]:
            meetings[rank] += 1
            return inner(number)

        found[rank] = drawn(refill(rank=rank, gather=gather), 0, dead[rank])

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert meetings[0] == meetings[1] > 0
    every = [name for share in found for ids in share for name in ids]
    assert len(every) == len(set(every)) and not {"i0", "i1", "i2", "i3"} & set(every)
    assert len(every) == min(8, sum(map(sum, dead)))


class Stubborn(Varied):
    """Rollouts of some issues all have one answer; it notes what it was asked for."""

    def __init__(self, alike: set[str]) -> None:
        super().__init__(ends=("answer",))
        self.alike, self.asked = alike, list[list[str]]()

    def collect(self, wanted: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        self.asked.append([issue.instance_id for issue in wanted])
        made = super().collect(wanted, group_size, step)
        return [replace(one, answer=["a.py"]) if one.instance_id in self.alike else one for one in made]


@pytest.mark.parametrize(("rounds", "alike", "filled"), [(2, 1, 1), (1, 1, 1), (0, 1, 0), (2, 6, 0)])
def test_a_step_whose_dropped_group_is_filled(
    nano: Path, tmp_path: Path, rounds: int, alike: int, filled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.training import varied_rollouts
    from tests.training.made_rollouts import issues

    monkeypatch.setattr(varied_rollouts, "issues", lambda count: issues(6))
    collector = Stubborn({f"o__r-{n}" for n in range(6)})
    recipe = replace(
        RECIPES["dapo"], reward=lambda o: RewardParts(f_beta(o.predicted, o.gold)), factor=lambda outcome: 1.0
    )
    trainer, captured = trainer_for(recipe, nano, tmp_path, collector, refill_rounds=rounds)
    first = trainer.train_dataset["prompt"][:2]  # type: ignore[index]
    collector.alike = set(first[:1]) if alike == 1 else {f"o__r-{n}" for n in range(6)}
    trainer.train()
    assert collector.asked[0] == first
    numbers, (trained,) = trainer.own_metrics, captured.rollouts
    here = [one.instance_id for one in trained]
    assert len(here) == 16 and here == [here[0]] * 8 + [here[8]] * 8
    assert numbers["group/refilled"] == filled
    # Every round samples as many groups as are dead; all alike, two in each of two rounds.
    extra = {(2, 1): 1, (1, 1): 1, (0, 1): 0, (2, 6): 4}[rounds, alike]
    assert numbers["group/drawn"] == 2 + extra == sum(map(len, collector.asked))
    assert (here[0] != first[0]) is (rounds > 0) and (here[8] == first[1]) is (alike == 1)
    left = 0.0 if filled else 0.5 if alike == 1 else 1.0
    assert numbers.get("kept/group/dead_rate", left) == left
    dead = {(2, 1): 1 / 3, (1, 1): 1 / 3, (0, 1): 0.5, (2, 6): 1.0}[rounds, alike]
    assert numbers["group/dead_rate"] == pytest.approx(dead)
    assert numbers["masked/dead_group"] == 16 * left


def test_it_belongs_to_dropped_groups() -> None:
    with pytest.raises(ConfigError, match=r"refill_rounds does nothing without dropped groups"):
        load(compose_overrides(["+experiment=v3", "train.grpo.refill_rounds=1"]))
    assert load(compose_overrides(["+experiment=colgrep"])).train.grpo.refill_rounds == 2
