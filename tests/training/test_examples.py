from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from codegrep.training.examples import make_examples, plan_steps
from tests.training.made_rollouts import issues, lost, rollout

ISSUE = issues(1)[0]


def test_weight_is_mask_times_turn_weight() -> None:
    record = rollout(ISSUE, 1)
    (example,) = make_examples([record], 1000).examples
    assert list(example.input_ids) == record.prompt_ids + record.completion_ids
    expected = [0.0] * len(record.prompt_ids)
    for place, mask in enumerate(record.loss_mask):
        (weight,) = [t.weight for t in record.turns if t.start <= place < t.end] or [0.0]
        expected.append(mask * weight)
    assert list(example.weights) == expected


def test_nothing_is_truncated_and_every_omission_is_counted() -> None:
    good = rollout(ISSUE, 1)
    worthless = rollout(ISSUE, 2)
    for turn in worthless.turns:
        turn.weight = 0.0
    short_mask = replace(rollout(ISSUE, 3), loss_mask=[1])
    no_turns = replace(rollout(ISSUE, 4), turns=[])
    too_long = replace(lost(ISSUE), prompt_ids=[5] * 5000, exit_cause="prompt_too_long", error="")
    made = make_examples([good, worthless, short_mask, no_turns, lost(ISSUE), too_long], 1000)
    assert len(made.examples) == 1
    assert made.left_out == {"no_weight": 1, "broken_record": 2, "infrastructure": 1, "prompt_too_long": 1}
    length = len(good.prompt_ids) + len(good.completion_ids)
    assert make_examples([good], length).examples
    assert make_examples([good], length - 1).left_out == {"too_long": 1}


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=80),
    st.integers(100, 2000),
    st.sampled_from([0.5, 1.0, 2.0, 2.5]),
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_plan_holds_each_example_once_an_epoch_within_the_budget(
    lengths: list[int], tokens: int, epochs: float, seed: int, workers: int
) -> None:
    plan = plan_steps(lengths, tokens, epochs, seed, workers)
    assert plan == plan_steps(lengths, tokens, epochs, seed, workers)
    assert all(len(step) == workers for step in plan)
    taken = sorted(index for step in plan for share in step for index in share)
    if epochs == int(epochs):
        assert taken == sorted(list(range(len(lengths))) * int(epochs))
    budget = max(1, tokens // workers)
    for step in plan:
        for share in step:
            assert len(share) <= 1 or len(share) * max(lengths[i] for i in share) <= budget


def test_plan_keeps_padding_low() -> None:
    lengths = [50 + 7 * (i % 100) for i in range(400)]
    plan = plan_steps(lengths, 4096, 1, 0)
    padded = sum(len(share) * max(lengths[i] for i in share) for step in plan for share in step)
    assert padded < 1.15 * sum(lengths)
