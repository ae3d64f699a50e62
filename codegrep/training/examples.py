"""From rollouts to supervised examples: token ids and a weight for each. Nothing is truncated. Imports no torch."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from codegrep.rollout.record import Rollout


@dataclass(frozen=True)
class Example:
    """One sequence.

    Attributes:
        input_ids: (T,) prompt and completion.
        weights: (T,) weight of predicting each token; 0 on the prompt, tool text and scaffolding.
    """

    input_ids: tuple[int, ...]
    weights: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def supervised(self) -> int:
        """Tokens with a weight."""
        return sum(1 for weight in self.weights if weight > 0)


@dataclass
class ExampleSet:
    """Usable examples, and how many were left out.

    Attributes:
        examples: in the order of the rollouts.
        left_out: count by reason: the exit cause of lost rollouts, "too_long", "no_weight" (all turns weigh 0),
            "broken_record" (lengths or turn spans disagree with the loss mask).
    """

    examples: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def make_examples(rollouts: Iterable[Rollout], max_tokens: int) -> ExampleSet:
    """Return the examples of rollouts, leaving out those longer than max_tokens.

    The weight of a token is its loss mask times the weight of its turn (colgrep, arXiv 2610.05099).
    """
    result = ExampleSet()
    for rollout in rollouts:
        example = _example(rollout, max_tokens)
        if isinstance(example, str):
            result.left_out[example] += 1
        else:
            result.examples.append(example)
    return result


def _example(rollout: Rollout, max_tokens: int) -> Example | str:
    if rollout.lost:
        return str(rollout.exit_cause)
    length = len(rollout.completion_ids)
    if len(rollout.loss_mask) != length or not rollout.prompt_ids or set(rollout.loss_mask) - {0, 1}:
        return "broken_record"
    turn_weights: list[float | None] = [None] * length
    for turn in rollout.turns:
        if not 0 <= turn.start <= turn.end <= length or turn.weight < 0:
            return "broken_record"
        turn_weights[turn.start : turn.end] = [turn.weight] * (turn.end - turn.start)
    weights = [0.0] * len(rollout.prompt_ids)
    for mask, weight in zip(rollout.loss_mask, turn_weights, strict=True):
        if mask and weight is None:
            return "broken_record"  # a sampled token that belongs to no turn
        weights.append(mask * (weight or 0.0))
    if not any(weights):
        return "no_weight"
    if len(weights) > max_tokens:
        return "too_long"
    return Example((*rollout.prompt_ids, *rollout.completion_ids), tuple(weights))


def plan_steps(
    lengths: Sequence[int], tokens_per_step: int, epochs: float, seed: int, workers: int = 1
) -> list[list[list[int]]]:
    """Return which examples each worker takes at each optimiser step: plan[step][worker] = indices.

    Each epoch holds every example once. It is shuffled, cut into windows, sorted by length inside a window to save
    padding, and filled into steps, which are shuffled. A worker's share of a step, padding included, stays within
    tokens_per_step / workers; a longer sequence goes alone. In the last step workers may get an empty share.

    Args:
        lengths: tokens of each example.
        tokens_per_step: of all workers, padding included.
        epochs: a fraction cuts the last epoch.
        seed: of the shuffles.
        workers: Ray Train workers.
    """
    budget = max(1, tokens_per_step // workers)
    steps: list[list[list[int]]] = []
    for epoch in range(math.ceil(epochs)):
        epoch_steps = _plan_epoch(lengths, budget, random.Random(f"{seed}-{epoch}"), workers)
        share = min(1.0, epochs - epoch)
        steps.extend(epoch_steps[: max(1, round(share * len(epoch_steps)))])
    return steps


def _plan_epoch(lengths: Sequence[int], budget: int, draw: random.Random, workers: int) -> list[list[list[int]]]:
    order = list(range(len(lengths)))
    draw.shuffle(order)
    mean = max(1, sum(lengths) // max(1, len(lengths)))
    window = max(1, 16 * workers * budget // mean)  # about 16 steps
    batches: list[list[int]] = []
    for start in range(0, len(order), window):
        batches.extend(_fill(sorted(order[start : start + window], key=lambda i: (lengths[i], i)), lengths, budget))
    draw.shuffle(batches)
    steps = [batches[start : start + workers] for start in range(0, len(batches), workers)]
    if steps:
        steps[-1] += [[] for _ in range(workers - len(steps[-1]))]
    return steps


def _fill(ordered: Sequence[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    batches: list[list[int]] = []
    for index in ordered:
        # Lengths ascend, so the newest sequence sets the padding of the batch.
        if batches and (len(batches[-1]) + 1) * lengths[index] <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
