"""KL, entropy and clipping of the tokens in the loss, by hand, and over microbatches of different sizes."""

from __future__ import annotations

import math

import pytest
import torch

from codegrep.training.step_metrics import Sums, add_up
from codegrep.training.token_metrics import Clip, token_sums

TOKENS = Clip(0.2, 0.2, "token")
OLD = torch.full((2, 3), -3.0)
NOW = OLD + torch.tensor([[1.3, 0.5, 1.1], [0.7, 1.5, 0.1]]).log()  # ratios
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
ENTROPY = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 99.0]])
REFERENCE = NOW + torch.tensor([[2.0, 1.0, 1.0], [0.5, 1.0, 9.0]]).log()


def sums(advantages: list[float], clip: Clip = TOKENS, mask: torch.Tensor = MASK) -> Sums:
    return token_sums(NOW, ENTROPY, mask, torch.tensor(advantages), old=OLD, reference=REFERENCE, clip=clip)


def test_by_hand() -> None:
    """Ratios 1.3, 0.5, 1.1 at A = 1: the first is clipped. 0.7, 1.5 at A = -1: the first; the masked 0.1 is not."""
    numbers = add_up([sums([1.0, -1.0])])
    assert numbers == pytest.approx(
        {
            "policy/entropy": 15 / 5,
            "policy/clip_ratio_low": 1 / 5,
            "policy/clip_ratio_high": 1 / 5,
            "policy/clip_ratio_region": 2 / 5,
            # k3 = x - ln x - 1 of x = reference/policy: 2, 1, 1, 1/2, 1
            "policy/kl": ((2 - math.log(2) - 1) + (0.5 + math.log(2) - 1)) / 5,
        }
    )


def test_no_advantage_is_not_clipped() -> None:
    assert add_up([sums([0.0, 0.0])])["policy/clip_ratio_region"] == 0


def test_weights_of_turns_do_not_move_the_sign() -> None:
    by_token = token_sums(
        NOW,
        ENTROPY,
        MASK,
        torch.tensor([[0.5, 2.0, 0.0], [-3.0, -0.1, -1.0]]),
        old=OLD,
        reference=None,
        clip=TOKENS,
    )
    assert add_up([by_token])["policy/clip_ratio_region"] == pytest.approx(2 / 5) and "policy/kl" not in by_token


def test_a_sequence_is_clipped_as_a_whole() -> None:
    """Geometric means: (1.3·0.5·1.1)^(1/3) = 0.894 with A < 0, (0.7·1.5)^(1/2) = 1.025 with A > 0."""
    numbers = add_up([sums([-1.0, 1.0], Clip(0.02, 0.02, "sequence"))])
    assert numbers["policy/clip_ratio_low"] == pytest.approx(3 / 5)
    assert numbers["policy/clip_ratio_high"] == pytest.approx(2 / 5)


def test_a_microbatch_counts_by_its_tokens_and_an_empty_one_not_at_all() -> None:
    first = torch.tensor([[1, 1, 1], [0, 0, 0]])
    parts = [sums([1.0, -1.0], mask=mask) for mask in (first, MASK - first, torch.zeros(2, 3))]
    whole = add_up([sums([1.0, -1.0])])
    assert add_up(parts) == pytest.approx(whole)
    assert add_up(parts[2:]) == {}  # a step that trains on nothing has no KL, and none of 0
